// Command queries says which series PromQL expressions read.
//
// It takes a JSON list of expressions on standard input, parses each with Prometheus' own parser,
// and prints a JSON list of what each selects and by which labels it groups.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/prometheus/prometheus/promql/parser"
)

// Selection is one expression's use of series.
type Selection struct {
	// Selectors holds, for each vector selector, the name of its metric and the labels it matches.
	Selectors []Selector `json:"selectors"`
	// Grouping holds the labels of by, without, on, ignoring and group_left.
	Grouping []string `json:"grouping"`
}

// Selector is one vector selector.
type Selector struct {
	Metric string            `json:"metric"`
	Labels map[string]string `json:"labels"`
}

func main() {
	var expressions []string
	if err := json.NewDecoder(os.Stdin).Decode(&expressions); err != nil {
		fmt.Fprintln(os.Stderr, "error: standard input is no JSON list of strings:", err)
		os.Exit(2)
	}
	promql := parser.NewParser(parser.Options{})
	found := make([]Selection, 0, len(expressions))
	failed := false
	for _, text := range expressions {
		expression, err := promql.ParseExpr(text)
		if err != nil {
			fmt.Fprintf(os.Stderr, "error: %s: %v\n", text, err)
			failed = true
			continue
		}
		found = append(found, selection(expression))
	}
	if failed {
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func selection(expression parser.Expr) Selection {
	result := Selection{Selectors: []Selector{}, Grouping: []string{}}
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		switch part := node.(type) {
		case *parser.VectorSelector:
			selector := Selector{Metric: part.Name, Labels: map[string]string{}}
			for _, matcher := range part.LabelMatchers {
				if matcher.Name != "__name__" {
					selector.Labels[matcher.Name] = matcher.Value
				}
			}
			result.Selectors = append(result.Selectors, selector)
		case *parser.AggregateExpr:
			result.Grouping = append(result.Grouping, part.Grouping...)
		case *parser.BinaryExpr:
			if part.VectorMatching != nil {
				result.Grouping = append(result.Grouping, part.VectorMatching.MatchingLabels...)
				result.Grouping = append(result.Grouping, part.VectorMatching.Include...)
			}
		}
		return nil
	})
	return result
}
