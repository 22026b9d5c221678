"""The paper's studies (§4.5, §4.6, Appendix C and D), a small module each. They compute and draw; `cli` prints."""
