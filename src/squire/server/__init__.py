"""The HTTP service: trained runs behind an API and a page. Needs the extra `server`."""

from squire.server.serving import serve as serve
