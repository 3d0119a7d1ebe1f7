"""The REST interface for administration: HTTP requests become calls of the client, with an OpenAPI description."""
