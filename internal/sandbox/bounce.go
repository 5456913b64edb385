package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/mail"
	"strings"
	"time"
)

// MailReports is where a mailbox for bounces is piped to.
type MailReports struct {
	URL string
	// Secret goes along as a Bearer token.
	Secret string
}

// FinalComplaint is what becomes of a mail that its reader takes for spam.
const FinalComplaint = "complaint"

// SetMailReports changes where bounces and complaints about mail accepted from
// now on go, for receivers that start after the sandbox; without a URL there are
// none.
func (s *Server) SetMailReports(to MailReports) { s.reports.Store(&to) }

// report queues what is reported of a mail that was accepted, where its
// recipient's script says so.
func (s *Server) report(r mailRecipient, from, id string, raw []byte) {
	to := *s.reports.Load()
	if to.URL == "" || r.script == nil || r.script.Final == "" || r.fault {
		return
	}
	st := stage{status: r.script.Final, code: r.script.Code}
	settings := s.receipts.get()
	t := &tale{
		due: time.Now().Add(settings.Delay.Std()), delay: settings.Delay.Std(), provider: smtpProvider, messageID: id,
		request: func(ctx context.Context, st stage) (*http.Request, error) {
			message := s.mailReport(st, from, r.to, raw)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL, strings.NewReader(message))
			if err != nil {
				return nil, err
			}
			req.Header.Set("Content-Type", "message/rfc822")
			req.Header.Set("Authorization", "Bearer "+to.Secret)
			return req, nil
		},
	}
	for range settings.Repeat {
		t.rest = append(t.rest, st)
	}
	s.callbacks.push(t)
}

// mailReport writes the message that comes back: a delivery status notification
// (RFC 3464), or a report of abuse (RFC 5965), each with the header of the mail.
func (s *Server) mailReport(st stage, from, to string, raw []byte) string {
	const boundary = "=_sandbox_report"
	kind, part := "delivery-status", fmt.Sprintf("Content-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; %s\r\n\r\n"+
		"Final-Recipient: rfc822; %s\r\nAction: failed\r\nStatus: %s\r\nDiagnostic-Code: smtp; 550 %s the sandbox was told to bounce\r\n",
		scriptedDomain, to, st.code, st.code)
	if st.status == FinalComplaint {
		kind, part = "feedback-report", fmt.Sprintf("Content-Type: message/feedback-report\r\n\r\nFeedback-Type: abuse\r\n"+
			"User-Agent: sandbox/1\r\nVersion: 1\r\nOriginal-Rcpt-To: <%s>\r\n", to)
	}
	return strings.Join([]string{
		"Return-Path: <>", "Date: " + s.now().Format(time.RFC1123Z), "From: Mail Delivery System <mailer-daemon@" + scriptedDomain + ">",
		"To: <" + from + ">", "Subject: Report", "Auto-Submitted: auto-replied", "MIME-Version: 1.0",
		"Content-Type: multipart/report; report-type=" + kind + `; boundary="` + boundary + `"`, "",
		"--" + boundary, "Content-Type: text/plain; charset=us-ascii", "", "What became of your message.",
		"--" + boundary, part,
		"--" + boundary, "Content-Type: text/rfc822-headers", "", headerOf(raw),
		"--" + boundary + "--", "",
	}, "\r\n")
}

// headerOf is the header of a mail as it was written; of what is none, nothing.
func headerOf(raw []byte) string {
	if _, err := mail.ReadMessage(bytes.NewReader(raw)); err != nil {
		return ""
	}
	head, _, _ := bytes.Cut(raw, []byte("\r\n\r\n"))
	return string(head) + "\r\n"
}
