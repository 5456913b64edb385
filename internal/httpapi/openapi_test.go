package httpapi_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
)

const document = "../../api/openapi.yaml"

func TestOpenAPIDocumentIsCurrent(t *testing.T) {
	want, err := httpapi.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE_OPENAPI") != "" {
		if err := os.WriteFile(document, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("api/openapi.yaml is not what the code says; run: UPDATE_OPENAPI=1 go test -run OpenAPI ./internal/httpapi")
	}
}

func TestOpenAPIIsServed(t *testing.T) {
	s := newService(t)
	want, err := httpapi.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	a := s.do(t, "GET", "/openapi.yaml", "", header{"Authorization", ""}).want(200)
	if !bytes.Equal(a.Body.Bytes(), want) {
		t.Error("the document that is served is another than the one that is written")
	}
	var doc struct{ OpenAPI string }
	if err := json.Unmarshal(s.do(t, "GET", "/openapi.json", "").want(200).Body.Bytes(), &doc); err != nil || doc.OpenAPI != "3.1.0" {
		t.Errorf("version %q, %v", doc.OpenAPI, err)
	}
	if strings.Contains(string(want), "$schema") {
		t.Error("the document has $schema members")
	}
}

func TestOpenAPIExampleIsAccepted(t *testing.T) {
	doc, err := httpapi.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var parsed struct {
		Paths map[string]map[string]struct {
			RequestBody struct {
				Content map[string]struct{ Example any }
			} `yaml:"requestBody"`
		}
	}
	if err := yaml.Unmarshal(doc, &parsed); err != nil {
		t.Fatal(err)
	}
	for path, key := range map[string]int{"/v1/notifications": 202, "/v1/keys": 201} {
		body, err := json.Marshal(parsed.Paths[path]["post"].RequestBody.Content["application/json"].Example)
		if err != nil {
			t.Fatal(err)
		}
		newService(t).do(t, "POST", path, string(body)).want(key)
	}
}

func TestDocumentationNeedsNothingFromElsewhere(t *testing.T) {
	s := newService(t)
	a := s.do(t, "GET", "/docs", "", header{"Authorization", ""}, header{"Accept", "text/html"}).want(200)
	html := a.Body.String()
	for _, r := range routes(t) {
		if !strings.Contains(html, "<code>"+strings.ReplaceAll(r.target, "0193a1b2-0000-7000-8000-000000000001", "{id}")+"</code>") {
			t.Errorf("%s is not documented", r.target)
		}
	}
	for _, want := range []string{"<code>to.push.provider</code>", "<code>chain[].success</code>", "<code>content.email.attachments[].filename</code>"} {
		if !strings.Contains(html, want) {
			t.Errorf("%s is not documented", want)
		}
	}
	if found := regexp.MustCompile(`(?i)<script|<link|<img|@import|url\(|src=`).FindString(html); found != "" {
		t.Errorf("the page has %s", found)
	}
	if strings.Contains(html, "ZgotmplZ") {
		t.Error("the template refused a value")
	}
	if got := a.Header().Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'none'; style-src 'sha256-") {
		t.Errorf("policy %q", got)
	}
}
