// In the place of a module that is no longer to be had; see perigee.go.
module github.com/racker/perigee

go 1.26.0
