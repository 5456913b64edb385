package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	// defaultURL is where dispatcher dev listens.
	defaultURL = "http://127.0.0.1:8080"
	// keyFile is where dispatcher dev leaves its key.
	keyFile = ".dispatcher/key"
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 16 << 20
)

// apiFlags are the flags of commands that talk to a running service.
type apiFlags struct{ url, key *string }

func newAPIFlags(f *flag.FlagSet) apiFlags {
	return apiFlags{
		url: f.String("url", "", "the service's `url` (default $DISPATCHER_URL, else "+defaultURL+")"),
		key: f.String("key", "", "an API `key` (default $DISPATCHER_KEY, else the text of ./"+keyFile+")"),
	}
}

// api is a running service.
type api struct {
	base, key string
	client    *http.Client
}

// open finds the service and a key for it.
func (f apiFlags) open(e *env) (*api, error) {
	a := &api{base: first(*f.url, e.vars["DISPATCHER_URL"], defaultURL), client: &http.Client{Timeout: time.Minute}}
	a.base = strings.TrimSuffix(a.base, "/")
	if u, err := url.Parse(a.base); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, usagef("the service's url must be http:// or https:// and a host")
	}
	a.key = first(*f.key, e.vars["DISPATCHER_KEY"])
	if a.key != "" {
		return a, nil
	}
	file := first(e.vars["DISPATCHER_KEY_FILE"], keyFile)
	b, err := os.ReadFile(file) //nolint:gosec // the user names the file
	if errors.Is(err, os.ErrNotExist) {
		return nil, usagef("there is no API key: give --key or DISPATCHER_KEY, or run in the folder of `dispatcher dev`")
	}
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	a.key = strings.TrimSpace(string(b))
	return a, nil
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// apiError is an answer that is not a success (RFC 9457).
type apiError struct {
	Status     int           `json:"status"`
	Title      string        `json:"title"`
	Code       string        `json:"code"`
	Detail     string        `json:"detail"`
	Errors     []fieldError  `json:"errors"`
	RetryAfter time.Duration `json:"-"`
}

// fieldError is one thing that is wrong with a request.
type fieldError struct {
	Pointer   string `json:"pointer"`   // into the body, or
	Parameter string `json:"parameter"` // a parameter or header
	Code      string `json:"code"`
	Detail    string `json:"detail"`
}

func (e *apiError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the service answered %d", e.Status)
	if e.Code != "" {
		fmt.Fprintf(&b, " (%s)", e.Code)
	}
	if text := first(e.Detail, e.Title); text != "" {
		b.WriteString(": " + text)
	}
	for _, f := range e.Errors {
		fmt.Fprintf(&b, "\n  %s: %s", first(f.Parameter, f.Pointer, "/"), f.Detail)
	}
	return b.String()
}

// call makes one request and returns the answer's body.
func (a *api) call(ctx context.Context, method, path string, header http.Header, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	if header != nil {
		req.Header = header
	}
	req.Header.Set("Authorization", "Bearer "+a.key)
	if len(body) > 0 && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the service cannot be reached: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end or given up
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode >= http.StatusOK && resp.StatusCode < http.StatusMultipleChoices {
		return answer, nil
	}
	return nil, problemOf(resp, answer)
}

// problemOf is the error that an answer is.
func problemOf(resp *http.Response, answer []byte) *apiError {
	problem := &apiError{}
	if err := json.Unmarshal(answer, problem); err != nil {
		problem = &apiError{Title: http.StatusText(resp.StatusCode)} // not from us: a proxy's page
	}
	problem.Status = resp.StatusCode
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		problem.RetryAfter = time.Duration(s) * time.Second
	}
	return problem
}

// decode reads an answer; members that are not known are ignored, so that an
// older program reads a newer service.
func decode(answer []byte, into any) error {
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("the answer cannot be understood: %w", err)
	}
	return nil
}
