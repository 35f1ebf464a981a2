// Rackspace's own SDK for Go, as the provider inside Kubernetes used it; see main.go.
module proreus.invalid/speaker

go 1.26.0

require (
	github.com/racker/perigee v0.0.0-00010101000000-000000000000
	github.com/rackspace/gophercloud v1.0.0
)

require github.com/mitchellh/mapstructure v1.5.0 // indirect

replace github.com/racker/perigee => ./perigee
