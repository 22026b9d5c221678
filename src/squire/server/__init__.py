"""The HTTP service: trained runs behind an API and a page. Needs the extra `server`."""
