"""The HTTP server: routes, middleware, connection limits, metrics, the web page."""
