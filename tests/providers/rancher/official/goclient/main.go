// Program goclient speaks to Rancher by Rancher's own client for Go: it reads a request from each
// line of its input, and writes the answer to a line of its output.
//
// The only release of the client is older than services. What it does with a type goes by the
// server's description of it, but is not exported for types that it does not know: hence the links.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"net/http"
	"os"
	_ "unsafe" // for linkname

	"github.com/rancher/go-rancher/client"
)

//go:linkname list github.com/rancher/go-rancher/client.(*RancherBaseClient).doList
func list(c *client.RancherBaseClient, kind string, opts *client.ListOpts, found interface{}) error

//go:linkname get github.com/rancher/go-rancher/client.(*RancherBaseClient).doGet
func get(c *client.RancherBaseClient, url string, opts *client.ListOpts, found interface{}) error

//go:linkname byID github.com/rancher/go-rancher/client.(*RancherBaseClient).doById
func byID(c *client.RancherBaseClient, kind, id string, found interface{}) error

//go:linkname create github.com/rancher/go-rancher/client.(*RancherBaseClient).doCreate
func create(c *client.RancherBaseClient, kind string, body, made interface{}) error

//go:linkname update github.com/rancher/go-rancher/client.(*RancherBaseClient).doUpdate
func update(c *client.RancherBaseClient, kind string, of *client.Resource, body, made interface{}) error

//go:linkname modify github.com/rancher/go-rancher/client.(*RancherBaseClient).doModify
func modify(c *client.RancherBaseClient, method, url string, body, made interface{}) error

//go:linkname act github.com/rancher/go-rancher/client.(*RancherBaseClient).doEmptyAction
func act(c *client.RancherBaseClient, kind, name string, of *client.Resource, made interface{}) error

//go:linkname remove github.com/rancher/go-rancher/client.(*RancherBaseClient).doResourceDelete
func remove(c *client.RancherBaseClient, kind string, of *client.Resource) error

type request struct {
	Verb    string
	Kind    string
	Name    string
	Of      client.Resource
	Filters map[string]interface{}
	Body    interface{}
}

type answer struct {
	Error string      `json:"error,omitempty"`
	Value interface{} `json:"value,omitempty"`
}

// sendable takes away a header that the client writes wrongly, and which Go of today refuses.
type sendable struct{ http.RoundTripper }

func (s sendable) RoundTrip(asked *http.Request) (*http.Response, error) {
	asked.Header.Del("Content-Length")
	return s.RoundTripper.RoundTrip(asked)
}

func main() {
	http.DefaultTransport = sendable{http.DefaultTransport}
	session, err := client.NewRancherClient(&client.ClientOpts{
		Url:       os.Getenv("CATTLE_URL"),
		AccessKey: os.Getenv("CATTLE_ACCESS_KEY"),
		SecretKey: os.Getenv("CATTLE_SECRET_KEY"),
	})
	if err != nil {
		log.Fatal(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			log.Fatal(err)
		}
		found := map[string]interface{}{}
		told := answer{Value: &found}
		if err := serve(&session.RancherBaseClient, asked, &found); err != nil {
			told.Error = err.Error()
		}
		if err := out.Encode(told); err != nil {
			log.Fatal(err)
		}
	}
}

func serve(c *client.RancherBaseClient, asked request, found *map[string]interface{}) error {
	switch asked.Verb {
	case "list":
		return list(c, asked.Kind, &client.ListOpts{Filters: asked.Filters}, found)
	case "follow":
		return get(c, asked.Of.Links[asked.Name], nil, found)
	case "get":
		return byID(c, asked.Kind, asked.Of.Id, found)
	case "create":
		return create(c, asked.Kind, asked.Body, found)
	case "update":
		return update(c, asked.Kind, &asked.Of, asked.Body, found)
	case "act":
		if asked.Body != nil {
			return modify(c, "POST", asked.Of.Actions[asked.Name], asked.Body, found)
		}
		return act(c, asked.Kind, asked.Name, &asked.Of, found)
	case "remove":
		return remove(c, asked.Kind, &asked.Of)
	}
	log.Fatalf("no verb %q", asked.Verb)
	return nil
}
