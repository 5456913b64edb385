package sandbox

import (
	"strconv"
	"time"
)

// twilioMessage is Twilio's message resource.
type twilioMessage struct {
	sid, account, to, from, service, body, status, code string
	created, updated                                    time.Time
}

// twilioResource is its JSON; a struct, since a benchmark makes thousands a second.
type twilioResource struct {
	SID          string            `json:"sid"`
	AccountSID   string            `json:"account_sid"`
	ServiceSID   *string           `json:"messaging_service_sid"`
	To           string            `json:"to"`
	From         *string           `json:"from"`
	Body         string            `json:"body"`
	Status       string            `json:"status"`
	Direction    string            `json:"direction"`
	APIVersion   string            `json:"api_version"`
	NumSegments  string            `json:"num_segments"`
	NumMedia     string            `json:"num_media"`
	Price        *string           `json:"price"`
	PriceUnit    string            `json:"price_unit"`
	ErrorCode    *int              `json:"error_code"`
	ErrorMessage *string           `json:"error_message"`
	DateCreated  string            `json:"date_created"`
	DateUpdated  string            `json:"date_updated"`
	DateSent     *string           `json:"date_sent"`
	URI          string            `json:"uri"`
	Subresources map[string]string `json:"subresource_uris"`
}

func (m twilioMessage) json() string {
	stamp, updated := m.created.Format(time.RFC1123Z), m.updated.Format(time.RFC1123Z)
	base := "/2010-04-01/Accounts/" + m.account + "/Messages/" + m.sid
	r := twilioResource{
		SID: m.sid, AccountSID: m.account, ServiceSID: orNull(m.service), To: m.to, From: orNull(m.from), Body: m.body,
		Status: m.status, Direction: "outbound-api", APIVersion: "2010-04-01", NumSegments: "1", NumMedia: "0", PriceUnit: "USD",
		DateCreated: stamp, DateUpdated: updated, URI: base + ".json", Subresources: map[string]string{"media": base + "/Media.json"},
	}
	if m.status != "queued" && m.status != "accepted" {
		r.DateSent = &stamp
	}
	if n, err := strconv.Atoi(m.code); err == nil {
		r.ErrorCode = &n
	}
	return object(r)
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
