package config

import (
	"bytes"
	_ "embed" // the template
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"text/template"

	"github.com/go-json-experiment/json/jsontext"
)

//go:embed example.yaml.tmpl
var exampleText string

// ExampleOptions say what an example is for. The zero value gives one with the
// vendors' own addresses, to be filled in.
type ExampleOptions struct {
	// Sandbox is the URL of a sandbox that every account is pointed at, such as
	// http://127.0.0.1:8090, and SMTP the address of its mail server.
	Sandbox string
	SMTP    string
	// PublicURL is http.public_url; empty leaves it out. With a sandbox, accounts
	// then believe what it reports with the secrets below.
	PublicURL string
}

// The secrets with which a sandbox signs what it reports to accounts of an
// example. They are no secrets, and open nothing elsewhere.
const (
	SandboxAppSecret    = "sandbox-app-secret"    //nolint:gosec // see above
	SandboxBounceSecret = "sandbox-bounce-secret" //nolint:gosec // see above
	SandboxTwilioSID    = "AC00000000000000000000000000000001"
	SandboxTwilioToken  = "sandbox-auth-token" //nolint:gosec // see above
)

// example is what the template is filled from.
type example struct {
	throwaway
	Sandbox, Origin, Host   string
	SMTPHost, SMTPPort      string
	PublicURL               PublicURL
	AppSecret, BounceSecret string
	TwilioSID, TwilioToken  string
}

// Example writes a complete annotated configuration. For a sandbox it makes new
// throwaway keys at each call, and all that is missing is the database's URL.
func Example(o ExampleOptions) ([]byte, error) {
	x := example{
		Sandbox: strings.TrimSuffix(o.Sandbox, "/"), AppSecret: SandboxAppSecret, BounceSecret: SandboxBounceSecret,
		TwilioSID: SandboxTwilioSID, TwilioToken: SandboxTwilioToken,
	}
	if err := x.PublicURL.UnmarshalText([]byte(o.PublicURL)); err != nil {
		return nil, fmt.Errorf("the public URL %w", err)
	}
	if x.Sandbox == "" {
		x.VAPIDPublicKey = exampleVAPIDKey
		return x.render()
	}
	u, err := url.Parse(x.Sandbox)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, errors.New("the sandbox's address must be an http or https URL, such as http://127.0.0.1:8090")
	}
	x.Origin, x.Host = u.Scheme+"://"+u.Host, u.Host
	if u.Port() == "" {
		x.Host = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	if x.SMTPHost, x.SMTPPort, err = net.SplitHostPort(o.SMTP); err != nil {
		return nil, errors.New("the sandbox's SMTP address must be host:port, such as 127.0.0.1:8025")
	}
	if x.throwaway, err = newThrowaway(x.Sandbox); err != nil {
		return nil, fmt.Errorf("make throwaway keys: %w", err)
	}
	return x.render()
}

func (x example) render() ([]byte, error) {
	t, err := template.New("example").Funcs(template.FuncMap{"quote": quote}).Parse(exampleText)
	if err != nil {
		return nil, fmt.Errorf("parse example: %w", err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, x); err != nil {
		return nil, fmt.Errorf("write example: %w", err)
	}
	return out.Bytes(), nil
}

// quote writes s as a double-quoted scalar; JSON's strings are YAML's too.
func quote(s string) (string, error) {
	b, err := jsontext.AppendQuote(nil, s)
	return string(b), err
}
