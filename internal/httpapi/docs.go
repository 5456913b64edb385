package httpapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
)

//go:embed docs.html
var docsHTML string

//go:embed docs.css
var docsCSS string

// docsPage is the OpenAPI document arranged for reading.
type docsPage struct {
	Title, Version, Description string
	Groups                      []docsGroup
	Problem                     []docsField
	Style                       template.CSS
}

type docsGroup struct {
	Name, Description string
	Operations        []docsOperation
}

type docsOperation struct {
	ID, Method, Path, Summary, Description, Scope, Example string
	Parameters, Body, Answer                               []docsField
	Status                                                 string // of success
	Problems                                               []string
}

type docsField struct {
	Name, Type, Facts, Description string
	Required                       bool
}

// docs serves a page that needs nothing from elsewhere. It is made when somebody
// first asks for it.
func (a *API) docs() http.HandlerFunc {
	page := sync.OnceValues(func() ([]byte, error) { return renderDocs(a.huma.OpenAPI()) })
	sum := sha256.Sum256([]byte(docsCSS))
	policy := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return func(w http.ResponseWriter, r *http.Request) {
		b, err := page()
		if err != nil {
			a.log.ErrorContext(r.Context(), "documentation cannot be shown", slog.Any("error", err))
			newProblem(http.StatusInternalServerError, CodeInternal, "The service made a mistake.").write(w)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", policy)
		_, _ = w.Write(b) // a reader who has gone does not miss it
	}
}

func renderDocs(doc *huma.OpenAPI) ([]byte, error) {
	t, err := template.New("docs").Funcs(template.FuncMap{"text": docsText, "id": docsID}).Parse(docsHTML)
	if err != nil {
		return nil, fmt.Errorf("parse documentation template: %w", err)
	}
	registry := doc.Components.Schemas
	page := docsPage{
		Title: doc.Info.Title, Version: doc.Info.Version, Description: doc.Info.Description,
		Problem: docsFields(registry, registry.Map()["Problem"], ""),
		Style:   template.CSS(docsCSS), //nolint:gosec // our own file
	}
	for _, tag := range doc.Tags {
		page.Groups = append(page.Groups, docsGroup{
			Name: tag.Name, Description: tag.Description, Operations: docsOperations(doc, tag.Name),
		})
	}
	var b bytes.Buffer
	if err := t.Execute(&b, page); err != nil {
		return nil, fmt.Errorf("write documentation: %w", err)
	}
	return b.Bytes(), nil
}

func docsOperations(doc *huma.OpenAPI, tag string) []docsOperation {
	var out []docsOperation
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		item := doc.Paths[path]
		for _, op := range []*huma.Operation{item.Post, item.Get, item.Put, item.Patch, item.Delete} {
			if op != nil && slices.Contains(op.Tags, tag) {
				out = append(out, docsOf(doc.Components.Schemas, op))
			}
		}
	}
	return out
}

func docsOf(r huma.Registry, op *huma.Operation) docsOperation {
	o := docsOperation{ID: op.OperationID, Method: op.Method, Path: op.Path, Summary: op.Summary, Description: op.Description}
	if len(op.Security) > 0 {
		o.Scope = strings.Join(op.Security[0][bearer], ", ")
	}
	for _, p := range op.Parameters {
		f := docsOfSchema(r, p.Schema)
		f.Name, f.Required, f.Description = p.In+" "+p.Name, p.Required, p.Description
		o.Parameters = append(o.Parameters, f)
	}
	if op.RequestBody != nil {
		media := op.RequestBody.Content[jsonType]
		o.Body = docsFields(r, media.Schema, "")
		if media.Example != nil {
			o.Example = fmt.Sprintf("%s", media.Example)
		}
	}
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		response := op.Responses[status]
		if status >= "400" {
			o.Problems = append(o.Problems, status+" "+response.Description)
			continue
		}
		o.Status = status + " " + response.Description
		if media := response.Content[jsonType]; media != nil {
			o.Answer = docsFields(r, media.Schema, "")
		}
	}
	return o
}

// docsFields lists the members of an object, those of objects inside it by their
// path: "chain[].channel".
func docsFields(r huma.Registry, s *huma.Schema, prefix string) []docsField {
	s = resolved(r, s)
	var out []docsField
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		child := s.Properties[name]
		f := docsOfSchema(r, child)
		f.Name, f.Required = prefix+name, slices.Contains(s.Required, name)
		out = append(out, f)
		out = append(out, docsInside(r, child, f.Name)...)
	}
	return out
}

// docsInside lists the members of what a member holds.
func docsInside(r huma.Registry, s *huma.Schema, name string) []docsField {
	s = resolved(r, s)
	switch {
	case len(s.OneOf) > 0:
		for _, choice := range s.OneOf {
			if inside := docsInside(r, choice, name); len(inside) > 0 {
				return inside
			}
		}
		return nil
	case s.Items != nil:
		return docsInside(r, s.Items, name+"[]")
	}
	return docsFields(r, s, name+".")
}

func docsOfSchema(r huma.Registry, s *huma.Schema) docsField {
	f := docsField{Description: s.Description}
	s = resolved(r, s)
	if f.Description == "" {
		f.Description = s.Description
	}
	f.Type, f.Facts = docsType(r, s), docsFacts(s)
	return f
}

func docsType(r huma.Registry, s *huma.Schema) string {
	s = resolved(r, s)
	switch {
	case len(s.OneOf) > 0:
		var choices []string
		for _, choice := range s.OneOf {
			choices = append(choices, docsType(r, choice))
		}
		return strings.Join(choices, " or ")
	case s.Items != nil:
		return "array of " + docsType(r, s.Items)
	case s.Type == "":
		return "any JSON"
	case s.Format == "date-time" || s.Format == "uuid":
		return s.Format
	}
	return s.Type
}

func docsFacts(s *huma.Schema) string {
	var facts []string
	if s.Items != nil && len(s.Items.Enum) > 0 {
		s = s.Items
	}
	if len(s.Enum) > 0 {
		var words []string
		for _, word := range s.Enum {
			words = append(words, fmt.Sprint(word))
		}
		facts = append(facts, "one of "+strings.Join(words, ", "))
	}
	if s.Minimum != nil && s.Maximum != nil {
		facts = append(facts, fmt.Sprintf("%g to %g", *s.Minimum, *s.Maximum))
	}
	if s.MaxLength != nil {
		facts = append(facts, "at most "+strconv.Itoa(*s.MaxLength)+" characters")
	}
	if s.MaxItems != nil {
		facts = append(facts, "at most "+strconv.Itoa(*s.MaxItems))
	}
	if s.Default != nil {
		facts = append(facts, fmt.Sprint("default ", s.Default))
	}
	if s.Nullable {
		facts = append(facts, "or null")
	}
	return strings.Join(facts, "; ")
}

func resolved(r huma.Registry, s *huma.Schema) *huma.Schema {
	if s.Ref != "" {
		return r.SchemaFromRef(s.Ref)
	}
	return s
}

// docsText writes paragraphs, and code between backquotes.
func docsText(s string) template.HTML {
	var b strings.Builder
	for paragraph := range strings.SplitSeq(s, "\n\n") {
		b.WriteString("<p>")
		for i, part := range strings.Split(paragraph, "`") {
			if i%2 == 1 {
				part = "<code>" + template.HTMLEscapeString(part) + "</code>"
			} else {
				part = template.HTMLEscapeString(part)
			}
			b.WriteString(part)
		}
		b.WriteString("</p>")
	}
	return template.HTML(b.String()) //nolint:gosec // every part was escaped
}

// docsID is the anchor of an operation.
func docsID(o docsOperation) string { return strings.ToLower(o.ID) }
