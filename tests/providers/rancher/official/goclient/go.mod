// Rancher's own client for Go, as a program; see main.go.
module proreus.invalid/goclient

go 1.24

require github.com/rancher/go-rancher v0.1.0
