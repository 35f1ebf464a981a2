// Command rules tries Prometheus rules on made-up series.
//
//	rules FILE < scenarios.json
//
// FILE is read with Prometheus' own rule loader, which refuses wrong expressions, labels and
// templates. Standard input is a JSON list of scenarios. For each, the rules are evaluated once a
// minute with Prometheus' own engine; printed is, for each, the list of alerts that fire at its end.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prometheus/common/promslog"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

// Scenario is what Prometheus has scraped.
type Scenario struct {
	// Series maps a series to its values, one a minute, in the notation of promtool's tests.
	Series map[string]string `json:"series"`
	// Minutes is when to look.
	Minutes int `json:"minutes"`
}

// Firing is an alert at the end of a scenario.
type Firing struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: rules FILE < scenarios.json")
		os.Exit(2)
	}
	var scenarios []Scenario
	if err := json.NewDecoder(os.Stdin).Decode(&scenarios); err != nil {
		fmt.Fprintln(os.Stderr, "error: standard input is no list of scenarios:", err)
		os.Exit(2)
	}
	results := make([][]Firing, 0, len(scenarios))
	for _, scenario := range scenarios {
		result, err := scenario.play(os.Args[1])
		if err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		results = append(results, result)
	}
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func (s Scenario) play(file string) ([]Firing, error) {
	var load strings.Builder
	load.WriteString("load 1m\n")
	for series, values := range s.Series {
		fmt.Fprintf(&load, "  %s %s\n", series, values)
	}
	promql := parser.NewParser(parser.Options{})
	suite, err := promqltest.NewLazyLoader(load.String(), promqltest.LazyLoaderOpts{
		EnableAtModifier: true, EnableNegativeOffset: true,
	})
	if err != nil {
		return nil, err
	}
	defer suite.Close()
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc:  rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage()),
		Appendable: suite.Storage(),
		Context:    context.Background(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
		Logger:     promslog.NewNopLogger(),
		Parser:     promql,
	})
	groups, errs := manager.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, file)
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	if err := evaluate(suite, groups, s.Minutes); err != nil {
		return nil, err
	}
	firing := []Firing{}
	for _, group := range groups {
		for _, rule := range group.AlertingRules() {
			for _, alert := range rule.ActiveAlerts() {
				if alert.State == rules.StateFiring {
					firing = append(firing, Firing{alert.Labels.Map(), alert.Annotations.Map()})
				}
			}
		}
	}
	return firing, nil
}

func evaluate(suite *promqltest.LazyLoader, groups map[string]*rules.Group, minutes int) error {
	for minute := range minutes + 1 {
		now := time.Unix(0, 0).UTC().Add(time.Duration(minute) * time.Minute)
		var problems []error
		suite.WithSamplesTill(now, func(err error) {
			if err != nil {
				problems = append(problems, err)
				return
			}
			for _, group := range groups {
				for _, rule := range group.Rules() {
					if alert, ok := rule.(*rules.AlertingRule); ok {
						alert.SetRestored(true)
					}
				}
				group.Eval(suite.Context(), now)
				for _, rule := range group.Rules() {
					problems = append(problems, rule.LastError())
				}
			}
		})
		if err := errors.Join(problems...); err != nil {
			return err
		}
	}
	return nil
}
