"""Talk to the API server: objects, requests, client, config, patches, watches. Knows no cloud."""
