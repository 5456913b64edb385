package sandbox

import "net/http"

// routes is everything under the HTTP address.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /2010-04-01/Accounts/{sid}/Messages.json", s.twilioSend)
	mux.HandleFunc("GET /2010-04-01/Accounts/{sid}/Messages.json", s.twilioList)
	mux.HandleFunc("GET /2010-04-01/Accounts/{sid}/Messages/{message}", s.twilioGet)
	mux.HandleFunc("POST /token", s.googleToken)
	mux.HandleFunc("POST /v1/projects/{project}/messages:send", s.fcmSend)
	mux.HandleFunc("POST /3/device/{token}", s.apnsSend)
	mux.HandleFunc("POST /webpush/{name}", s.webPushSend)
	mux.HandleFunc("POST /api/chat.postMessage", s.slackPostMessage)
	mux.HandleFunc("/api/auth.test", s.slackAuthTest)
	mux.HandleFunc("/api/conversations.history", s.slackHistory)
	mux.HandleFunc("POST /services/{key...}", s.slackWebhookSend)
	mux.HandleFunc("/webhook/", s.webhookSend)
	mux.Handle("/sandbox/", s.control())
	mux.Handle("GET /{$}", http.RedirectHandler("/sandbox/", http.StatusFound))
	mux.HandleFunc("/", s.other)
	return mux
}

// other serves what a pattern cannot name, and says of the rest that it is not
// here.
func (s *Server) other(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && metaPath.MatchString(r.URL.Path) {
		s.metaSend(w, r)
		return
	}
	if forwarded(r) {
		s.webPushSend(w, r)
		return
	}
	problem(w, http.StatusNotFound, "not_found", "", "no provider of this sandbox serves that")
}

// control is what people and tests steer the sandbox by. Pages of other origins
// cannot.
func (s *Server) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /sandbox/messages", s.getMessages)
	mux.HandleFunc("DELETE /sandbox/messages", s.deleteMessages)
	mux.HandleFunc("GET /sandbox/faults", s.getFaults)
	mux.HandleFunc("PUT /sandbox/faults", s.putFaults)
	mux.HandleFunc("GET /sandbox/receipts", s.getReceipts)
	mux.HandleFunc("PUT /sandbox/receipts", s.putReceipts)
	mux.HandleFunc("GET /sandbox/callbacks", s.getCallbacks)
	mux.HandleFunc("POST /sandbox/inbound", s.postInbound)
	mux.HandleFunc("GET /sandbox/recipients", s.getRecipients)
	mux.HandleFunc("GET /sandbox/subscription", s.getSubscription)
	mux.HandleFunc("GET /sandbox/credentials", s.getCredentials)
	mux.HandleFunc("GET /sandbox/{$}", s.getPage)
	mux.HandleFunc("GET /sandbox/cards", s.getCards)
	mux.HandleFunc("GET /sandbox/mail/{seq}", s.getMail)
	mux.HandleFunc("GET /sandbox/static/{file}", s.getStatic)
	return http.NewCrossOriginProtection().Handler(mux)
}
