package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// api speaks the HTTP API of the simulated cloud. It does not try again: a call that is refused
// fails the object it was made for, and the framework's queue decides when to come back.
type api struct {
	Endpoint string `json:"endpoint"`
	Token    string `json:"token"`
	Region   string `json:"region"`
	http     *http.Client
}

type object map[string]any

type part struct {
	Kind      string            `json:"kind"`
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Version   int               `json:"version"`
	Tags      map[string]string `json:"tags"`
	Address   string            `json:"address"`
	AddressID string            `json:"address_id"`
	Balancer  string            `json:"load_balancer_id"`
	State     string            `json:"state"`
	Protocol  string            `json:"protocol"`
	Port      int32             `json:"port"`
	To        int32             `json:"target_port"`
	Targets   []target          `json:"targets"`
	Affinity  *int32            `json:"affinity_seconds"`
	Check     checkup           `json:"health_check"`
	Sources   []string          `json:"source_ranges"`
	CIDR      string            `json:"destination"`
	Instance  string            `json:"instance_id"`
}

type target struct {
	Instance string `json:"instance_id"`
	Address  string `json:"address"`
}

type machine struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Zone      string            `json:"zone"`
	Region    string            `json:"region"`
	Type      string            `json:"type"`
	State     string            `json:"state"`
	Labels    map[string]string `json:"labels"`
	Addresses []struct {
		Type    string `json:"type"`
		Address string `json:"address"`
	} `json:"addresses"`
}

func newAPI(configuration io.Reader) (*api, error) {
	if configuration == nil {
		return nil, fmt.Errorf("--cloud-config is missing")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 256
	made := &api{http: &http.Client{Transport: transport, Timeout: 30 * time.Second}}
	return made, json.NewDecoder(configuration).Decode(made)
}

// refusal is an answer that says no.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func isMissing(err error) bool {
	said, ok := err.(*refusal)
	return ok && said.status == http.StatusNotFound
}

func (a *api) call(ctx context.Context, method, path string, body object, answer any) error {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, a.Endpoint+"/v1/"+path, content)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+a.Token)
	response, err := a.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 400 {
		return &refusal{response.StatusCode, fmt.Sprintf("%s %s: %s", method, path, said)}
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(said, answer)
}

// resources lists the parts of a kind or with a prefix of the name, and with a tag.
func (a *api) resources(ctx context.Context, query url.Values) ([]part, error) {
	var found []part
	for {
		var page struct {
			Resources []part `json:"resources"`
			Next      string `json:"next_page_token"`
		}
		if err := a.call(ctx, "GET", "resources?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		found = append(found, page.Resources...)
		if page.Next == "" {
			return found, nil
		}
		query.Set("page_token", page.Next)
	}
}
