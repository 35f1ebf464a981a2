// Program vcsim is a vCenter to test on: the simulator of govmomi, with a hand on its machines.
//
// It serves the APIs over plain HTTP and prints its address. Then it reads commands, one JSON object
// a line, and answers each with a line: {}, {"id": "…"} of what it made, or {"error": "…"}. It ends with its standard input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/url"
	"os"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"

	_ "github.com/vmware/govmomi/cns/simulator"
	_ "github.com/vmware/govmomi/pbm/simulator"
	_ "github.com/vmware/govmomi/vapi/simulator"

	"github.com/vmware/govmomi/session"
)

// A command of the tests; which fields count depends on Do.
type command struct {
	Do       string    `json:"do"`
	Machines []machine `json:"machines"`
	Name     string    `json:"name"`
	Kind     string    `json:"kind"`
	Parent   string    `json:"parent"`
	Category string    `json:"category"`
	Tag      string    `json:"tag"`
	Path     string    `json:"path"`
}

// A hand holds what commands need: the simulator from within, a client of it, a folder for files.
type hand struct {
	model  *simulator.Model
	client *vim25.Client
	login  *url.Userinfo
	place  string
}

func main() {
	model := simulator.VPX()
	flag.IntVar(&model.Datacenter, "datacenters", 1, "how many")
	flag.IntVar(&model.Cluster, "clusters", 1, "in each datacenter")
	flag.IntVar(&model.ClusterHost, "hosts", 2, "in each cluster")
	user := flag.String("user", "user", "who may log in")
	password := flag.String("password", "", "with which password")
	flag.Parse()
	model.Machine, model.Host, model.Autostart = 0, 0, false
	must(model.Create())
	defer model.Remove()
	login := url.UserPassword(*user, *password)
	model.Service.Listen = &url.URL{Host: "127.0.0.1:0", User: login}
	model.Service.RegisterEndpoints = true
	// It is not closed at the end: that would wait for calls that wait for changes.
	server := model.Service.NewServer()

	ctx := context.Background()
	client, err := vim25.NewClient(ctx, soap.NewClient(server.URL, true))
	must(err)
	must(session.NewManager(client).Login(ctx, login))
	fmt.Println(server.URL.Scheme + "://" + server.URL.Host)

	place, err := os.MkdirTemp("", "vcsim-")
	must(err)
	defer func() { _ = os.RemoveAll(place) }()
	own := &hand{model, client, login, place}
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		answer := map[string]string{}
		var asked command
		if err := json.Unmarshal(line, &asked); err != nil {
			answer["error"] = err.Error()
		} else if err := own.do(ctx, &asked, answer); err != nil {
			answer["error"] = fmt.Sprintf("%s: %v", asked.Do, err)
		}
		text, err := json.Marshal(answer)
		must(err)
		fmt.Println(string(text))
	}
}

func (h *hand) do(ctx context.Context, c *command, answer map[string]string) error {
	switch c.Do {
	case "create":
		return h.create(ctx, c.Machines)
	case "change":
		return h.change(c.Machines)
	case "destroy":
		return h.destroy(ctx, c.Name)
	case "add":
		return h.add(ctx, c.Kind, c.Parent, c.Name)
	case "tag":
		return h.tag(ctx, c.Category, c.Tag, c.Path)
	case "expire":
		return h.expire(ctx)
	case "datastore":
		return h.datastore(ctx, c.Name, c.Path)
	case "volume":
		id, err := h.volume(ctx, c.Path)
		answer["id"] = id
		return err
	}
	return fmt.Errorf("unknown command")
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
