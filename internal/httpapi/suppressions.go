package httpapi

import (
	"context"
	"encoding/hex"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// Suppressions are the lists of addresses that may not be written to, one for each
// project.
type Suppressions interface {
	Suppressions(ctx context.Context, f store.SuppressionFilter) ([]store.Suppression, error)
	// Suppressed returns those of the addresses that are on the list.
	Suppressed(ctx context.Context, project string, addresses []store.Address) ([]store.Suppression, error)
	Suppress(ctx context.Context, list []store.Suppression) error
	Lift(ctx context.Context, project string, a store.Address, by, why string, now time.Time) error
	SuppressionHistory(ctx context.Context, f store.SuppressionFilter, before int64) ([]store.SuppressionEvent, error)
}

var _ Suppressions = (*store.Store)(nil)

const (
	recipientRule = "must be an address that the channel could have"
	channelRule   = "must be one of push, sms, whatsapp, email, slack, webhook"
)

type suppressionsInput struct {
	Channel   string `query:"channel" enum:"push,sms,whatsapp,email,slack,webhook"`
	Recipient string `query:"recipient" maxLength:"4096" doc:"An address, exactly as it was sent; of email addresses the case makes no difference. Without channel it is looked for on every channel that it could belong to."`
	Reason    string `query:"reason" maxLength:"64" doc:"Only those with this reason."`
	Limit     int    `query:"limit" minimum:"1" maximum:"100" default:"50" doc:"How many at most."`
	Cursor    string `query:"cursor" maxLength:"64" doc:"The next of the page before, with the same filters."`
}

type suppressionHistoryInput struct {
	Channel   string `query:"channel" enum:"push,sms,whatsapp,email,slack,webhook"`
	Recipient string `query:"recipient" maxLength:"4096" doc:"An address, exactly as it was sent; of email addresses the case makes no difference. Without channel it is looked for on every channel that it could belong to."`
	Limit     int    `query:"limit" minimum:"1" maximum:"100" default:"50" doc:"How many at most."`
	Cursor    string `query:"cursor" maxLength:"64" doc:"The next of the page before, with the same filters."`
}

type suppressionRequest struct {
	Channel   string `json:"channel" enum:"push,sms,whatsapp,email,slack,webhook"`
	Recipient string `json:"recipient" minLength:"1" maxLength:"4096" doc:"The address as notifications name it: a phone number, an email address, a URL, a device token, a Slack channel. A token counts for FCM and for APNs."`
	Why       string `json:"why" minLength:"1" maxLength:"500" doc:"Kept in the history. No address and no secret belong here." example:"asked by phone, ticket 4711"`
	Until     string `json:"until,omitzero" format:"date-time" doc:"When it ends by itself; never if absent."`
}

type liftInput struct {
	ID  string `path:"id" maxLength:"64" doc:"The entry's id."`
	Why string `query:"why" required:"true" minLength:"1" maxLength:"500" doc:"Kept in the history. No address and no secret belong here."`
}

type suppressionView struct {
	ID        string         `json:"id" example:"sms-3ba1979877547c84abd999c3de4bfa9a" doc:"The channel and a hash of the address. The address itself is not stored."`
	Channel   notify.Channel `json:"channel" enum:"push,sms,whatsapp,email,slack,webhook"`
	Reason    string         `json:"reason" example:"recipient_rejected" doc:"Why: stop, complaint or unsubscribe (the person said so), manual (an operator said so), unreachable (five deliveries in a row, over three days or more, ended recipient_unavailable), or the outcome of the call or receipt that said the address is dead, such as recipient_rejected."`
	Source    string         `json:"source" example:"twilio-main" doc:"The account that it came from, or the name and id of the API key."`
	CreatedAt time.Time      `json:"created_at"`
	Until     *time.Time     `json:"until" doc:"When it ends by itself; null for never."`
}

type suppressionEventView struct {
	At      time.Time      `json:"at"`
	Action  string         `json:"action" enum:"added,extended,lifted,expired" doc:"extended: it lasts longer than before, perhaps for another reason. lifted: by an operator, or by the person. expired: its time was over."`
	ID      string         `json:"id" example:"sms-3ba1979877547c84abd999c3de4bfa9a" doc:"The entry's id."`
	Channel notify.Channel `json:"channel" enum:"push,sms,whatsapp,email,slack,webhook"`
	Reason  string         `json:"reason" example:"recipient_rejected" doc:"The entry's, as it became or, where it is gone, was."`
	Source  string         `json:"source" example:"twilio-main" doc:"The entry's."`
	Until   *time.Time     `json:"until" doc:"The entry's; null for never."`
	By      string         `json:"by,omitzero" doc:"The operator: the name and id of an API key."`
	Why     string         `json:"why,omitzero" doc:"What the operator gave; start where the person asked to be written to again."`
}

type suppressionsOutput struct {
	Body struct {
		Items []suppressionView `json:"items"`
		Next  string            `json:"next,omitzero" doc:"The cursor of the following page; absent on the last."`
	}
}

type suppressedOutput struct {
	Body struct {
		Items []suppressionView `json:"items" doc:"What is on the list now: one entry, or two of a token."`
	}
}

type suppressionHistoryOutput struct {
	Body struct {
		Items []suppressionEventView `json:"items"`
		Next  string                 `json:"next,omitzero" doc:"The cursor of the following page; absent on the last."`
	}
}

func (a *API) routeSuppressions() {
	const all = "/v1/suppressions"
	op := func(id, method, path, scope, summary, text string, errs ...int) huma.Operation {
		return huma.Operation{
			OperationID: id, Method: method, Path: path, Tags: []string{tagSuppressions}, Summary: summary, Description: text,
			Security: needs(scope), Middlewares: huma.Middlewares{a.hasSuppressions}, SkipValidateParams: true, Errors: errs,
		}
	}
	huma.Register(a.huma, op("listSuppressions", http.MethodGet, all, ScopeRead, "List the addresses that may not be written to",
		"Those of the key's project, newest first. The addresses themselves are not stored, only a hash of each: look for one with recipient.",
		401, 403, 406, 422, 503), a.listSuppressions)
	add := op("addSuppression", http.MethodPost, all, ScopeAdmin, "Suppress an address",
		"The reason is manual. Where the address is on the list already, and at least for as long, that entry stays as it is. "+
			"Notifications that are under way are concerned too: nothing is sent to the address from now on.",
		400, 401, 403, 406, 413, 415, 422, 503)
	add.Middlewares = append(add.Middlewares, a.withBody)
	huma.Register(a.huma, add, a.addSuppression)
	document[suppressionRequest](a.huma, all, `{"channel": "sms", "recipient": "+14155550100", "why": "asked by phone, ticket 4711"}`)
	huma.Register(a.huma, op("liftSuppression", http.MethodDelete, all+"/{id}", ScopeAdmin, "Let an address be written to again",
		"Also where the person said stop: make sure that they want it. Where the entry was another one and the person said stop besides, that takes its place, under the same id. Notifications that ended as suppressed stay so; retry them if they are still wanted.",
		401, 403, 404, 406, 422, 503), a.liftSuppression)
	huma.Register(a.huma, op("listSuppressionHistory", http.MethodGet, all+"/history", ScopeAdmin, "List changes to the suppressed addresses",
		"Who and what put an address on the list, made it stay longer or took it off, newest first. Kept as long as notifications are.",
		401, 403, 406, 422, 503), a.listSuppressionHistory)
}

// hasSuppressions refuses what this process has not.
func (a *API) hasSuppressions(ctx huma.Context, next func(huma.Context)) {
	if a.suppressions == nil {
		refuse(ctx, newProblem(http.StatusServiceUnavailable, CodeUnavailable, "This process has no list of suppressions.").with("Retry-After", "1"))
		return
	}
	next(ctx)
}

func (a *API) listSuppressions(ctx context.Context, in *suppressionsInput) (*suppressionsOutput, error) {
	project := keyOf(ctx).Project
	mark := filterMark("suppressions", project, in.Channel, in.Recipient, in.Reason)
	f, errs := suppressionFilter(project, in.Channel, in.Recipient, in.Limit)
	if f.Reason = in.Reason; f.Reason != "" && !reasonWord.MatchString(f.Reason) {
		errs = append(errs, ErrorDetail{Parameter: "query.reason", Code: notify.CodeFormat, Detail: "must be 1 to 64 small letters, digits and underscores"})
	}
	before, ok := suppressionAt(in.Cursor, mark)
	if f.Before = before; !ok {
		errs = append(errs, ErrorDetail{Parameter: "query.cursor", Code: notify.CodeFormat, Detail: "must be the next of a page with the same filters"})
	}
	if len(errs) > 0 {
		return nil, invalid(errs)
	}
	list, err := a.suppressions.Suppressions(ctx, f)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	out := &suppressionsOutput{}
	if len(list) > in.Limit {
		list = list[:in.Limit]
		out.Body.Next = suppressionCursor(&list[in.Limit-1], mark)
	}
	out.Body.Items = suppressionsOut(list)
	return out, nil
}

var reasonWord = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)

// suppressionFilter is what lists of suppressions have in common. It asks for one
// more than limit, which tells whether there is a next page.
func suppressionFilter(project, channel, recipient string, limit int) (store.SuppressionFilter, []ErrorDetail) {
	var errs []ErrorDetail
	f := store.SuppressionFilter{Project: project, Channel: notify.Channel(channel), Limit: limit + 1}
	if channel != "" && !f.Channel.Valid() {
		errs = append(errs, ErrorDetail{Parameter: "query.channel", Code: notify.CodeChoice, Detail: channelRule})
	} else if recipient != "" {
		if f.Addresses = addresses(f.Channel, recipient); len(f.Addresses) == 0 {
			errs = append(errs, ErrorDetail{Parameter: "query.recipient", Code: notify.CodeFormat, Detail: recipientRule})
		}
	}
	if limit < 1 || limit > maxPage {
		errs = append(errs, ErrorDetail{Parameter: "query.limit", Code: notify.CodeRange, Detail: "must be 1 to 100"})
	}
	return f, errs
}

func (a *API) addSuppression(ctx context.Context, _ *struct{}) (*suppressedOutput, error) {
	var in suppressionRequest
	if err := decodeBody(ctx, &in); err != nil {
		return nil, err
	}
	now, key := a.now(), keyOf(ctx)
	until, hashes, problems := in.check(now)
	if len(problems) > 0 {
		return nil, bodyProblem(problems)
	}
	list, named := make([]store.Suppression, len(hashes)), make([]store.Address, len(hashes))
	for i, hash := range hashes {
		named[i] = store.Address{Channel: notify.Channel(in.Channel), Hash: hash}
		list[i] = store.Suppression{
			Project: key.Project, Channel: named[i].Channel, Address: hash, Reason: store.ReasonManual, Source: operatorOf(ctx), At: now, Until: until,
			By: operatorOf(ctx), Why: strings.TrimSpace(in.Why),
		}
	}
	if err := a.suppressions.Suppress(ctx, list); err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	stands, err := a.suppressions.Suppressed(ctx, key.Project, named)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	out := &suppressedOutput{}
	out.Body.Items = suppressionsOut(stands)
	return out, nil
}

// check returns when the entry ends, zero for never, the hashes of the address, and
// what is wrong.
func (in *suppressionRequest) check(now time.Time) (until time.Time, hashes [][16]byte, problems []notify.Problem) {
	wrong := func(ok bool, pointer, code, detail string) {
		if !ok {
			problems = append(problems, notify.Problem{Pointer: pointer, Code: code, Detail: detail})
		}
	}
	channel := notify.Channel(in.Channel)
	wrong(channel.Valid(), "/channel", notify.CodeChoice, channelRule)
	if channel.Valid() {
		for _, t := range targets(channel, in.Recipient) {
			if t.Valid(channel) {
				hashes = append(hashes, t.Hash(channel))
			}
		}
		// A word that could never be an address would suppress nobody, unnoticed.
		wrong(len(hashes) > 0, "/recipient", notify.CodeFormat, recipientRule)
	}
	problems = append(problems, checkWhy(in.Why)...)
	until, ok := instant(in.Until)
	wrong(ok, "/until", notify.CodeFormat, "must be an RFC 3339 date-time, such as 2027-12-01T08:00:00Z")
	wrong(!ok || until.IsZero() || until.After(now), "/until", notify.CodeRange, "must be later than now")
	return until, hashes, problems
}

func (a *API) liftSuppression(ctx context.Context, in *liftInput) (*struct{}, error) {
	if problems := checkWhy(in.Why); len(problems) > 0 {
		return nil, parameterProblem("query.why", problems[0].Code, problems[0].Detail)
	}
	address, err := parseSuppressionID(in.ID)
	if err == nil {
		err = a.suppressions.Lift(ctx, keyOf(ctx).Project, address, operatorOf(ctx), strings.TrimSpace(in.Why), a.now())
	}
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	return &struct{}{}, nil
}

func (a *API) listSuppressionHistory(ctx context.Context, in *suppressionHistoryInput) (*suppressionHistoryOutput, error) {
	project := keyOf(ctx).Project
	mark := filterMark("suppression_events", project, in.Channel, in.Recipient)
	f, errs := suppressionFilter(project, in.Channel, in.Recipient, in.Limit)
	before, ok := eventAt(in.Cursor, mark)
	if !ok {
		errs = append(errs, ErrorDetail{Parameter: "query.cursor", Code: notify.CodeFormat, Detail: "must be the next of a page with the same filters"})
	}
	if len(errs) > 0 {
		return nil, invalid(errs)
	}
	events, err := a.suppressions.SuppressionHistory(ctx, f, before)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	out := &suppressionHistoryOutput{}
	if len(events) > in.Limit {
		events = events[:in.Limit]
		out.Body.Next = eventCursor(events[in.Limit-1].ID, mark)
	}
	out.Body.Items = make([]suppressionEventView, len(events))
	for i := range events {
		e := &events[i]
		out.Body.Items[i] = suppressionEventView{
			At: e.At.UTC(), Action: e.Action, ID: suppressionID(&e.Suppression), Channel: e.Channel, Reason: e.Reason, Source: e.Source,
			Until: utc(e.Until), By: e.By, Why: e.Why,
		}
	}
	return out, nil
}

func suppressionsOut(list []store.Suppression) []suppressionView {
	out := make([]suppressionView, len(list))
	for i := range list {
		s := &list[i]
		out[i] = suppressionView{
			ID: suppressionID(s), Channel: s.Channel, Reason: s.Reason, Source: s.Source, CreatedAt: s.At.UTC(), Until: utc(s.Until),
		}
	}
	return out
}

// suppressionID names an entry within its project. It is made of the address's hash,
// so that the same address has the same id each time that it is suppressed.
func suppressionID(s *store.Suppression) string {
	return string(s.Channel) + "-" + hex.EncodeToString(s.Address[:])
}

func parseSuppressionID(id string) (store.Address, error) {
	channel, text, _ := strings.Cut(id, "-")
	a := store.Address{Channel: notify.Channel(channel)}
	hash, err := hex.DecodeString(text)
	if err != nil || len(hash) != len(a.Hash) || !a.Channel.Valid() || text != strings.ToLower(text) {
		return store.Address{}, store.ErrNotFound
	}
	copy(a.Hash[:], hash)
	return a, nil
}
