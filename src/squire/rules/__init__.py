"""Rules: mining with exact counts, applying them, and the text format of AnyBURL."""
