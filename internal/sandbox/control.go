package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const problemType = "application/problem+json"

func writeJSON(w http.ResponseWriter, v any) {
	reply{status: http.StatusOK, body: object(v)}.write(w)
}

// problem answers an RFC 9457 problem; pointer names the member it is about.
func problem(w http.ResponseWriter, status int, code, pointer, detail string) {
	p := map[string]any{"type": "about:blank", "title": http.StatusText(status), "status": status, "code": code, "detail": detail}
	if pointer != "" {
		p["errors"] = []any{map[string]string{"pointer": pointer, "detail": detail}}
	}
	reply{status: status, contentType: problemType, body: object(p)}.write(w)
}

// badJSON answers what is wrong with a request's JSON, by name.
func badJSON(w http.ResponseWriter, err error) {
	var field *FieldError
	var semantic *json.SemanticError
	switch {
	case errors.As(err, &field):
		problem(w, http.StatusBadRequest, "invalid_field", field.Pointer, field.Error())
	case errors.As(err, &semantic) && errors.Is(semantic.Err, json.ErrUnknownName):
		pointer := string(semantic.JSONPointer)
		problem(w, http.StatusBadRequest, "unknown_field", pointer, fmt.Sprintf("unknown field %q", pointer))
	case errors.As(err, &semantic):
		reason := fmt.Sprintf("must not be a JSON %s", semantic.JSONKind)
		if semantic.Err != nil {
			reason = semantic.Err.Error()
		}
		pointer := string(semantic.JSONPointer)
		problem(w, http.StatusBadRequest, "invalid_field", pointer, pointer+": "+reason)
	default:
		problem(w, http.StatusBadRequest, "invalid_json", "", "body is not valid JSON")
	}
}

func readStrict(r *http.Request, v any) error {
	return json.UnmarshalRead(http.MaxBytesReader(nil, r.Body, maxBody), v, json.RejectUnknownMembers(true))
}

// onlyQuery refuses query parameters that the call does not know.
func onlyQuery(w http.ResponseWriter, r *http.Request, names ...string) (url.Values, bool) {
	query := r.URL.Query()
	for name := range query {
		if !slices.Contains(names, name) {
			problem(w, http.StatusBadRequest, "unknown_parameter", "", fmt.Sprintf("unknown query parameter %q", name))
			return nil, false
		}
	}
	return query, true
}

func (s *Server) getMessages(w http.ResponseWriter, r *http.Request) {
	query, ok := onlyQuery(w, r, "provider", "to", "after")
	if !ok {
		return
	}
	// A plus that was not escaped arrives as a space, which no address holds.
	f := Filter{Provider: query.Get("provider"), To: strings.ReplaceAll(query.Get("to"), " ", "+")}
	if f.Provider != "" && !slices.Contains(providers(), f.Provider) {
		problem(w, http.StatusBadRequest, "invalid_parameter", "", "provider must be one of "+strings.Join(providers(), ", "))
		return
	}
	if after := query.Get("after"); after != "" {
		var err error
		if f.After, err = strconv.ParseInt(after, 10, 64); err != nil {
			f.Since, err = time.Parse(time.RFC3339Nano, strings.ReplaceAll(after, " ", "+"))
		}
		if err != nil {
			problem(w, http.StatusBadRequest, "invalid_parameter", "", "after must be a message's seq or an RFC 3339 time")
			return
		}
	}
	s.writeMessages(w, s.find(f))
}

// writeMessages streams, since a list may be far larger than one should hold.
func (s *Server) writeMessages(w http.ResponseWriter, found []*entry) {
	w.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriterSize(w, 64<<10)
	_, _ = out.WriteString(`{"items":[`)
	for i, e := range found {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		if json.MarshalWrite(out, e.view(), json.Deterministic(true)) != nil {
			return // the caller hung up
		}
	}
	_, _ = out.WriteString("]}\n")
	_ = out.Flush()
}

func (s *Server) deleteMessages(w http.ResponseWriter, _ *http.Request) {
	s.Forget()
	w.WriteHeader(http.StatusNoContent)
}

// ruleList is the body of PUT /sandbox/faults: a list of rules, {"items":[…]} as
// GET answers it, or one rule alone.
type ruleList []Rule

// UnmarshalJSONFrom implements [json.UnmarshalerFrom].
func (l *ruleList) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() != '{' {
		return json.UnmarshalDecode(dec, (*[]Rule)(l))
	}
	var one struct {
		Items []Rule `json:"items"`
		Rule
	}
	if err := json.UnmarshalDecode(dec, &one); err != nil {
		return err
	}
	*l = one.Items
	if one.Items == nil {
		*l = ruleList{one.Rule}
	}
	return nil
}

func (s *Server) putFaults(w http.ResponseWriter, r *http.Request) {
	var rules ruleList
	err := readStrict(r, &rules)
	if err == nil {
		err = s.SetFaults(rules...)
	}
	if err != nil {
		badJSON(w, err)
		return
	}
	s.getFaults(w, r)
}

func (s *Server) getFaults(w http.ResponseWriter, _ *http.Request) { writeItems(w, s.Faults()) }

func writeItems[T any](w http.ResponseWriter, items []T) {
	writeJSON(w, map[string]any{"items": items})
}

func (s *Server) putReceipts(w http.ResponseWriter, r *http.Request) {
	rec := DefaultReceipts() // what is left out is as at start
	err := readStrict(r, &rec)
	if err == nil {
		err = s.SetReceipts(rec)
	}
	if err != nil {
		badJSON(w, err)
		return
	}
	s.getReceipts(w, r)
}

func (s *Server) getReceipts(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, s.Receipts())
}

func (s *Server) getCallbacks(w http.ResponseWriter, _ *http.Request) { writeItems(w, s.Callbacks()) }

func (s *Server) getRecipients(w http.ResponseWriter, _ *http.Request) {
	writeItems(w, ScriptedRecipients())
}

func (s *Server) getSubscription(w http.ResponseWriter, r *http.Request) {
	query, ok := onlyQuery(w, r, "name")
	if !ok {
		return
	}
	name := query.Get("name")
	if name == "" || len(name) > 100 || strings.Contains(name, "/") {
		problem(w, http.StatusBadRequest, "invalid_parameter", "", "name must have 1 to 100 bytes and no slash")
		return
	}
	endpoint, p256dh, auth := s.NewSubscription(name)
	writeJSON(w, map[string]any{
		"provider": webPush, "endpoint": endpoint, "keys": map[string]string{"p256dh": p256dh, "auth": auth},
	})
}

func (s *Server) getCredentials(w http.ResponseWriter, _ *http.Request) {
	c, err := s.Credentials()
	if err != nil {
		problem(w, http.StatusInternalServerError, "internal", "", "keys could not be made")
		return
	}
	writeJSON(w, map[string]any{
		"fcm":     map[string]any{"project": FCMProject, "credentials": jsontext.Value(c.FCM)},
		"apns":    map[string]string{"key": string(c.APNsKey), "key_id": c.APNsKeyID, "team_id": APNsTeamID},
		"webpush": map[string]string{"vapid_public_key": c.VAPIDPublic, "vapid_private_key": c.VAPIDPrivate},
	})
}
