package client

import (
	"fmt"
	"strings"
	"time"
)

// Problem is a refusal: the problem document of RFC 9457 that the API answered,
// or what the database said about [EnqueueTx]. It is an error; find it with
// [errors.As]. It never holds what was sent.
type Problem struct { //nolint:errname // RFC 9457 calls it a problem
	// Status is the HTTP status; 422 for a refusal of [EnqueueTx].
	Status int `json:"status"`
	// Code names the problem and does not change between versions, for example
	// invalid_request, not_found, unauthorized, idempotency_key_mismatch. It is
	// empty where the answer was not the service's own.
	Code   string `json:"code"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	// Errors is what exactly is wrong with the request.
	Errors []FieldError `json:"errors"`
	// RetryAfter is how long the service asked to be left alone; 0 for no word.
	RetryAfter time.Duration `json:"-"`

	cause error
}

// FieldError is one thing that is wrong with a request.
type FieldError struct {
	Pointer   string `json:"pointer"`   // JSON pointer (RFC 6901) into the body
	Parameter string `json:"parameter"` // instead of a pointer, such as query.limit
	Code      string `json:"code"`      // for example required, format, choice, range
	Detail    string `json:"detail"`    // what is allowed
}

// Error implements error.
func (p *Problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "dispatcher: %d %s", p.Status, first(p.Code, p.Title))
	if p.Detail != "" && len(p.Errors) == 0 {
		b.WriteString(": " + p.Detail)
	}
	for i, e := range p.Errors {
		if i == 3 {
			fmt.Fprintf(&b, "; and %d more", len(p.Errors)-i)
			break
		}
		fmt.Fprintf(&b, "; %s %s", first(e.Pointer, e.Parameter, "the body"), e.Detail)
	}
	return b.String()
}

// Unwrap returns the database's error where [EnqueueTx] was refused.
func (p *Problem) Unwrap() error { return p.cause }

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
