// Command webhook receives a project's status webhooks and prints what happens.
//
//	WEBHOOK_SECRET=whsec_… go run ./examples/webhook 127.0.0.1:9000
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: webhook ADDRESS")
	}
	handler, err := receiver(os.Getenv("WEBHOOK_SECRET"), func(h happening) {
		fmt.Println(h.Type, h.Data.NotificationID, h.Data.Because)
	})
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: os.Args[1], Handler: handler, ReadTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// happening is the part of a call that this program uses.
type happening struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      struct {
		NotificationID string `json:"notification_id"`
		Reference      string `json:"reference"`
		Because        string `json:"because"`
	} `json:"data"`
}

// receiver hands on what is signed with the secret. A call may come more than once;
// who must not act twice remembers its webhook-id.
func receiver(secret string, tell func(happening)) (http.Handler, error) {
	if !strings.HasPrefix(secret, "whsec_") { // an empty one would verify what anybody signs
		return nil, errors.New("WEBHOOK_SECRET must be the secret that the webhook was made with, whsec_…")
	}
	checker, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return nil, fmt.Errorf("read WEBHOOK_SECRET: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "the body cannot be read", http.StatusBadRequest)
			return
		}
		if err := checker.Verify(body, r.Header); err != nil {
			http.Error(w, "the signature is wrong", http.StatusUnauthorized)
			return
		}
		var h happening
		if err := json.Unmarshal(body, &h); err != nil {
			http.Error(w, "the body is no event", http.StatusBadRequest)
			return
		}
		tell(h)
		w.WriteHeader(http.StatusNoContent)
	}), nil
}
