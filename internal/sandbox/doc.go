// Package sandbox stands in for the world: fake Twilio, Meta, FCM, APNs, web
// push, Slack, SMTP and webhook servers over real sockets, with scripted faults
// and signed receipts, and a page that shows what a person would have received.
//
// One HTTP address (HTTP/1.1, and HTTP/2 without TLS on the same port) and one
// SMTP address serve everything. It backs `dispatcher sandbox`, `dispatcher
// dev` and tests, keeps everything in memory, and knows nothing of the
// dispatcher that calls it: it is written from what the vendors document, so
// that an adapter's misunderstanding shows.
//
// # Endpoints
//
//	POST /2010-04-01/Accounts/{sid}/Messages.json          Twilio, SMS and WhatsApp
//	GET  /2010-04-01/Accounts/{sid}/Messages.json          …list: To, From, DateSent, PageSize
//	GET  /2010-04-01/Accounts/{sid}/Messages/{sid}.json    …look-up
//	POST /v{N}.{m}/{phone_number_id}/messages              Meta WhatsApp Cloud API
//	POST /token                                            Google's OAuth token endpoint
//	POST /v1/projects/{project}/messages:send              FCM HTTP v1
//	POST /3/device/{token}                                 APNs
//	POST /webpush/{name}                                   web push (RFC 8030, 8188, 8291, 8292)
//	POST /api/chat.postMessage                             Slack Web API
//	     /api/auth.test, /api/conversations.history
//	POST /services/{T…}/{B…}/{key}                         Slack incoming webhook
//	ANY  /webhook/…                                        plain webhook receiver
//
// # Control
//
//	GET    /sandbox/                   the page
//	GET    /sandbox/messages           every message call received, ?provider= &to= &after=
//	DELETE /sandbox/messages           forget them
//	GET    /sandbox/faults             the rules that are left; PUT replaces them
//	GET    /sandbox/receipts           how callbacks behave; PUT replaces it
//	GET    /sandbox/callbacks          the callbacks sent lately and what they were answered
//	POST   /sandbox/inbound            a message that a person writes, such as STOP
//	GET    /sandbox/subscription?name= a web push subscription; the same name gives the same keys
//	GET    /sandbox/credentials        throwaway credentials that fit this sandbox
//	GET    /sandbox/recipients         the recipients that script themselves
//
// # Recipients that script themselves
//
// [ScriptedRecipients] is the table, recipients.md its print. A token, a Slack channel, the last part of
// a Slack webhook's URL and a web push subscription's name may carry a suffix
// after a hyphen ("unregistered-42"), a mail address a tag ("bounce+42@…"), so
// that one dead address does not stand for all. Fault rules come first, then
// these, then the normal answer.
package sandbox
