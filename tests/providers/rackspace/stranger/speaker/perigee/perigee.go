// Package perigee has as much of the HTTP client of that name as gophercloud 1.0.0 calls. The
// module itself is gone from where Go's modules are kept.
package perigee

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// Options are those of a request.
type Options struct {
	CustomClient *http.Client
	ReqBody      any
	Results      any
	MoreHeaders  map[string]string
	OkCodes      []int
}

// Response is the answer to a request.
type Response struct {
	HttpResponse http.Response
	StatusCode   int
}

// UnexpectedResponseCodeError says that an answer has none of the statuses that are good.
type UnexpectedResponseCodeError struct {
	Url      string
	Expected []int
	Actual   int
	Body     []byte
}

func (e *UnexpectedResponseCodeError) Error() string {
	return fmt.Sprintf("%s: %d in the place of %v: %s", e.Url, e.Actual, e.Expected, e.Body)
}

// Get reads.
func Get(url string, options Options) error {
	_, err := Request(http.MethodGet, url, options)
	return err
}

// Request sends a request; JSON goes and comes.
func Request(method, url string, options Options) (*Response, error) {
	var body io.Reader
	if options.ReqBody != nil {
		encoded, err := json.Marshal(options.ReqBody)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(encoded)
	}
	request, err := http.NewRequest(method, url, body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	for name, value := range options.MoreHeaders {
		request.Header.Set(name, value)
	}
	client := options.CustomClient
	if client == nil {
		client = http.DefaultClient
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if !isExpected(answer.StatusCode, options.OkCodes) {
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return nil, &UnexpectedResponseCodeError{url, options.OkCodes, answer.StatusCode, text}
	}
	if options.Results != nil {
		defer answer.Body.Close()
		if err := json.NewDecoder(answer.Body).Decode(options.Results); err != nil {
			return nil, err
		}
	}
	return &Response{*answer, answer.StatusCode}, nil
}

func isExpected(status int, good []int) bool {
	for _, one := range good {
		if status == one {
			return true
		}
	}
	return len(good) == 0 && status >= 200 && status < 300
}
