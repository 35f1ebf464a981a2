"""The API server: objects, requests, client, config, patches, watches. Knows no cloud."""
