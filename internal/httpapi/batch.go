package httpapi

import (
	"bytes"
	"context"
	"errors"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// Limits of a batch.
const (
	// DefaultMaxBatchBody is the largest JSON batch, in bytes, unless configured.
	DefaultMaxBatchBody = 10 << 20

	maxBatchRows  = 1000    // of a JSON batch
	maxStreamRows = 10_000  // of a batch of lines
	maxLine       = 1 << 20 // bytes of one line
	partRows      = 1000    // of a JSON batch that are accepted together: it is paid for whole
	partLines     = 250     // of lines: a part must fit into what a limit allows at once
	partBytes     = 4 << 20 // of the rows of one part, more or less
	maxRowErrors  = 10      // of one row, so that answers stay small
)

// batchRoute starts the name of a batch row's idempotency record; the row's index
// follows. The key is the batch's own.
const batchRoute = "batch#"

const linesType = "application/x-ndjson"

// Batches keeps what batches with an Idempotency-Key were answered.
type Batches interface {
	BeginBatch(ctx context.Context, project, key string, fingerprint [32]byte, keep time.Duration) (store.Batch, error)
	BatchPart(ctx context.Context, b store.Batch, first int) (store.BatchPart, bool, error)
	SaveBatchPart(ctx context.Context, b store.Batch, p store.BatchPart) error
	LeaveBatch(ctx context.Context, b store.Batch, results int) error
}

type batchInput struct {
	Key   string `header:"Idempotency-Key" doc:"Makes the batch safe to repeat: a finished one is answered again, an interrupted one is completed, and while another request runs it the answer is 409. A batch's keys are apart from those of single notifications." example:"\"import-2026-12-01\""`
	Trace string `header:"Traceparent" doc:"W3C Trace Context of every notification of the batch."`
}

// batchRequest is the body of a JSON batch, for the document.
type batchRequest struct {
	Defaults      partialNotification   `json:"defaults,omitempty" doc:"Members that a notification gets where it does not have them itself. A member is taken whole or not at all: content is not merged with content."`
	Notifications []partialNotification `json:"notifications" minItems:"1" maxItems:"1000" doc:"With the defaults, each is a notification like that of POST /v1/notifications."`
}

// partialNotification is a notification of which defaults may hold any part.
type partialNotification notificationRequest

// Schema implements huma.SchemaProvider.
func (partialNotification) Schema(r huma.Registry) *huma.Schema {
	whole := *r.SchemaFromRef(schemaOf[notificationRequest](r).Ref)
	whole.Required = nil
	return &whole
}

// batchResult is what became of one row.
type batchResult struct {
	Index       int       `json:"index" doc:"Of the row, counted from 0."`
	Status      int       `json:"status" example:"202" doc:"What a request for the row alone would have been answered: 202 accepted, 409 the same as an earlier row of this batch, 413 too large, 422 wrong; not decided, so repeat it: 429 the key's limit was spent, 503 a fault of the service."`
	ID          uuid.UUID `json:"id,omitzero" format:"uuid" doc:"Of the accepted notification."`
	Replayed    bool      `json:"replayed,omitzero" doc:"It was accepted by an earlier, interrupted request."`
	DuplicateOf *int      `json:"duplicate_of,omitzero" doc:"The row that is the same."`
	Error       *Problem  `json:"error,omitzero" doc:"What is wrong. Pointers are into the row with the defaults in it; at most 10 places are named."`
}

// batchAnswer is the answer to a JSON batch, for the document.
type batchAnswer struct {
	Results []batchResult `json:"results" doc:"In the order of the rows."`
}

func (a *API) routeBatch() {
	registry := a.huma.OpenAPI().Components.Schemas
	huma.Register(a.huma, huma.Operation{
		OperationID: "createBatch", Method: http.MethodPost, Path: "/v1/notifications/batch", Tags: []string{tagNotifications},
		Summary: "Send many notifications",
		Description: "Accepts up to 1,000 notifications as JSON, or up to 10,000 as NDJSON, a notification in each line of at most 1 MiB. " +
			"NDJSON is worked through as it arrives, and results come as lines while it does; a first line `{\"defaults\": {…}}` " +
			"does what `defaults` does in JSON.\n\nEach row has its own result, and a bad one does not keep others from being accepted. " +
			"A row that is the same as an earlier accepted one of the batch, white space and the order of members aside, is refused with 409: " +
			"give them different references if both are meant.\n\nEach row counts against the limit of the API key. A JSON batch is let in whole or not at all: 429, or 413 `batch_over_burst` " +
			"where the limit never allows as many at once. NDJSON is let in as far as the limit goes; all rows after that have the result 429.\n\n" +
			"With an Idempotency-Key the results are kept, and the key of a row is that key with its index.",
		Security: needs(ScopeSend), Middlewares: huma.Middlewares{withKey}, SkipValidateParams: true,
		Metadata: map[string]any{lined: true},
		Errors:   []int{400, 401, 403, 406, 408, 409, 413, 415, 422, 503},
		Responses: map[string]*huma.Response{"200": {
			Description: "A result for each row.",
			Content: map[string]*huma.MediaType{
				jsonType:  {Schema: schemaOf[batchAnswer](registry)},
				linesType: {Schema: schemaOf[batchResult](registry)},
			},
		}},
	}, a.createBatch)
	document[batchRequest](a.huma, "/v1/notifications/batch", exampleBatch)
	content := a.huma.OpenAPI().Paths["/v1/notifications/batch"].Post.RequestBody.Content
	content[linesType] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Description: "A notification in each line."}}
}

func (a *API) createBatch(_ context.Context, in *batchInput) (*huma.StreamResponse, error) {
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		r, w := humago.Unwrap(hc)
		var p *Problem
		if isLines(r.Header) {
			p = a.streamBatch(hc.Context(), w, r, in.Trace)
		} else {
			p = a.jsonBatch(hc, w, in.Trace)
		}
		if p != nil {
			p.write(w)
		}
	}}, nil
}

// lined marks the operation that can answer with lines.
const lined = "lined"

// linesWanted reports whether a caller wants lines where there are any.
func linesWanted(op *huma.Operation, accept []string) bool {
	return op.Metadata[lined] == true && strings.Contains(strings.Join(accept, ","), linesType)
}

func isLines(h http.Header) bool {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && (media == linesType || media == "application/jsonl" || media == "application/ndjson")
}

func (a *API) jsonBatch(hc huma.Context, w http.ResponseWriter, trace string) *Problem {
	body, p := a.readBody(hc, a.maxBatchBody)
	if p != nil {
		return p
	}
	given, rows, p := decodeBatch(body)
	if p != nil {
		return p
	}
	ctx := hc.Context()
	run, p := a.beginBatch(ctx, fingerprint(body), trace)
	if p != nil {
		return p
	}
	defer run.leave(ctx)
	if run.batch.Results == 0 { // else it is answered again
		if p := run.limit.all(ctx, w.Header(), len(rows)); p != nil {
			return p
		}
	}
	run.defaults = given
	var out bytes.Buffer
	for part := range parts(rows) {
		results, p := run.part(ctx, part)
		if p != nil {
			return p
		}
		out.Write(results)
	}
	run.complete = true
	lines := bytes.TrimSuffix(out.Bytes(), []byte{'\n'})
	run.header(w, jsonType)
	_, _ = w.Write(slices.Concat([]byte(`{"results":[`), bytes.ReplaceAll(lines, []byte{'\n'}, []byte{','}), []byte("]}")))
	return nil
}

// decodeBatch takes a JSON batch apart. What is inside its rows is their own
// affair, as long as it is JSON.
func decodeBatch(body []byte) (defaults, []batchRow, *Problem) {
	var given defaults
	var rows []batchRow
	wrong := func(pointer, code, detail string) (defaults, []batchRow, *Problem) { //nolint:unparam // shaped to be returned
		return nil, nil, bodyProblem([]notify.Problem{{Pointer: pointer, Code: code, Detail: detail}})
	}
	if !jsontext.Value(body).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
		return wrong("", notify.CodeMalformed, "must be valid JSON")
	}
	if jsontext.Value(body).Kind() != jsontext.KindBeginObject {
		return wrong("", notify.CodeType, "must be an object")
	}
	seen := map[string]bool{}
	for name, value := range members(body) {
		if seen[name] {
			return wrong("", notify.CodeDuplicateMember, "must be there only once")
		}
		seen[name] = true
		switch name {
		case "defaults":
			var p *notify.Problem
			if given, p = parseDefaults(value); p != nil {
				return wrong("/defaults"+p.Pointer, p.Code, p.Detail)
			}
		case "notifications":
			if value.Kind() != jsontext.KindBeginArray {
				return wrong("/notifications", notify.CodeType, "must be an array")
			}
			for row := range elements(value) {
				rows = append(rows, batchRow{raw: row})
			}
		default:
			return wrong("", notify.CodeUnknownMember, "has a member beside defaults and notifications")
		}
	}
	switch {
	case len(rows) == 0:
		return wrong("/notifications", notify.CodeRequired, "must have at least one notification")
	case len(rows) > maxBatchRows:
		return wrong("/notifications", notify.CodeLength, "must be at most 1000; more fit into NDJSON")
	}
	return given, rows, nil
}

// beginBatch takes the lease of a batch with an Idempotency-Key.
func (a *API) beginBatch(ctx context.Context, fingerprint [32]byte, trace string) (*batchRun, *Problem) {
	project := keyOf(ctx).Project
	run := &batchRun{
		api: a, project: project, trace: traceparent(trace), key: keyFrom(ctx), seen: map[[32]byte]int{}, account: a.account(project),
		limit: a.rowLimit(ctx),
	}
	if run.key == "" {
		return run, nil
	}
	var err error
	if run.batch, err = a.batches.BeginBatch(ctx, project, run.key, fingerprint, a.keepKeys); err != nil {
		return nil, a.batchProblem(ctx, err)
	}
	return run, nil
}

func (a *API) batchProblem(ctx context.Context, err error) *Problem {
	var running *store.BatchRunningError
	after := 1
	switch {
	case errors.As(err, &running):
		// It takes seconds, not the whole lease, unless its runner has died.
		after = max(1, min(5, int(running.Lease.Seconds())))
	case errors.Is(err, store.ErrBatchLost):
	default:
		return a.storeProblem(ctx, err)
	}
	return newProblem(http.StatusConflict, CodeBatchRunning, "Another request runs the batch of this Idempotency-Key now.").
		with("Retry-After", strconv.Itoa(after))
}

const exampleBatch = `{
  "defaults": {
    "content": {"title": "Maintenance tonight", "body": "The service is away from 22:00 to 22:30 UTC."},
    "priority": "low"
  },
  "notifications": [
    {"to": {"email": "ana@example.com"}, "reference": "customer-1"},
    {"to": {"sms": "+14155550100"}, "reference": "customer-2"}
  ]
}`

// defaults are the members that rows get where they lack them.
type defaults []member

type member struct {
	name  string
	value jsontext.Value
}

// requestMembers are the members of a notification's request.
const requestMembers = " to chain mode content priority send_at expires_at reference metadata "

func parseDefaults(raw jsontext.Value) (defaults, *notify.Problem) {
	if raw.Kind() == jsontext.KindNull {
		return nil, nil
	}
	if raw.Kind() != jsontext.KindBeginObject {
		return nil, &notify.Problem{Code: notify.CodeType, Detail: "must be an object"}
	}
	var d defaults
	for name, value := range members(raw) {
		if !strings.Contains(requestMembers, " "+name+" ") {
			return nil, &notify.Problem{Code: notify.CodeUnknownMember, Detail: "has a member that no notification has"}
		}
		if slices.ContainsFunc(d, func(m member) bool { return m.name == name }) {
			return nil, &notify.Problem{Pointer: "/" + name, Code: notify.CodeDuplicateMember, Detail: "must be there only once"}
		}
		d = append(d, member{name, value})
	}
	return d, nil
}

// into returns the row with the defaults that it lacks. What is no object stays
// what it is.
func (d defaults) into(row []byte) []byte {
	if len(d) == 0 || jsontext.Value(row).Kind() != jsontext.KindBeginObject ||
		!jsontext.Value(row).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
		return row
	}
	has := map[string]bool{}
	for name := range members(row) {
		has[name] = true
	}
	out := slices.Clone(bytes.TrimRight(row, " \t\r\n"))
	out = out[:len(out)-1]
	comma := len(has) > 0
	for _, m := range d {
		if has[m.name] {
			continue
		}
		if comma {
			out = append(out, ',')
		}
		comma = true
		out = append(append(append(append(out, '"'), m.name...), '"', ':'), m.value...)
	}
	return append(out, '}')
}
