package email

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // what topics sign with unless told otherwise
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
)

// topicPattern is an ARN of a standard topic.
var topicPattern = regexp.MustCompile(`^arn:(aws|aws-cn|aws-us-gov):sns:([a-z]{2}(?:-[a-z]+)+-[0-9]):[0-9]{12}:[A-Za-z0-9_-]{1,256}$`)

// sns reads what an Amazon SNS topic sends. Nothing is believed that does not
// carry the signature of SNS, made with a key whose certificate comes from the
// address of SNS in the topic's own region.
//
// A notification may come again for weeks, so its age is no reason to refuse it;
// reading it twice changes nothing.
//
// Source: docs.aws.amazon.com/sns, Verifying the signatures of Amazon SNS
// messages, and Parsing Amazon SNS message formats.
type sns struct {
	topic string
	host  string // of SNS in the topic's region
	certs *certificates
}

// newSNS returns the reader of a topic, nil where its ARN is none.
func newSNS(topic string, transport http.RoundTripper) *sns {
	m := topicPattern.FindStringSubmatch(topic)
	if m == nil {
		return nil
	}
	host := "sns." + m[2] + ".amazonaws.com"
	if m[1] == "aws-cn" {
		host += ".cn"
	}
	return &sns{topic: topic, host: host, certs: newCertificates(transport)}
}

// The types of what SNS sends.
const (
	snsNotification = "Notification"
	snsSubscribe    = "SubscriptionConfirmation"
	snsUnsubscribe  = "UnsubscribeConfirmation"
)

// snsMessage is the envelope around a message.
type snsMessage struct {
	Type             string
	MessageID        string `json:"MessageId"`
	TopicARN         string `json:"TopicArn"`
	Subject          *string
	Message          string
	Timestamp        string
	Token            string
	SubscribeURL     string
	SignatureVersion string
	Signature        string
	SigningCertURL   string
}

func (s *sns) read(ctx context.Context, body []byte) (channels.Report, error) {
	var m snsMessage
	if err := json.Unmarshal(body, &m); err != nil {
		return channels.Report{}, refuseCallback(http.StatusBadRequest, "the body is no message of sns; raw message delivery must be off")
	}
	switch {
	case m.Type != snsNotification && m.Type != snsSubscribe && m.Type != snsUnsubscribe:
		return channels.Report{}, refuseCallback(http.StatusForbidden, "the body is no message of sns; raw message delivery must be off")
	case m.TopicARN != s.topic:
		return channels.Report{}, refuseCallback(http.StatusForbidden, "another topic than sns_topic")
	}
	if err := s.verify(ctx, &m); err != nil {
		return channels.Report{}, err
	}
	switch m.Type {
	case snsSubscribe:
		return s.subscribe(ctx, &m)
	case snsUnsubscribe:
		return channels.Report{Answer: said("taken: nothing more comes from this topic")}, nil
	}
	return readSES(m.Message), nil
}

// verify checks the signature.
func (s *sns) verify(ctx context.Context, m *snsMessage) error {
	var hash crypto.Hash
	var digest []byte
	switch text := m.signed(); m.SignatureVersion {
	case "1":
		sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
		hash, digest = crypto.SHA1, sum[:]
	case "2":
		sum := sha256.Sum256([]byte(text))
		hash, digest = crypto.SHA256, sum[:]
	default:
		return refuseCallback(http.StatusForbidden, "a version of sns's signature that is not known")
	}
	signature, err := base64.StdEncoding.Strict().DecodeString(m.Signature)
	if err != nil {
		return refuseCallback(http.StatusForbidden, "the signature is missing or malformed")
	}
	if !s.trusted(m.SigningCertURL, true) {
		return refuseCallback(http.StatusForbidden, "the certificate's address is not that of sns in the topic's region")
	}
	key, err := s.certs.key(ctx, m.SigningCertURL)
	if err != nil {
		return err
	}
	if rsa.VerifyPKCS1v15(key, hash, digest, signature) != nil {
		return refuseCallback(http.StatusForbidden, "the signature differs")
	}
	return nil
}

// signed is the text that SNS signs: names and values on lines of their own, in
// the order of the names.
func (m *snsMessage) signed() string {
	var b strings.Builder
	add := func(name, value string) {
		b.WriteString(name + "\n" + value + "\n")
	}
	add("Message", m.Message)
	add("MessageId", m.MessageID)
	if m.Type == snsNotification {
		if m.Subject != nil {
			add("Subject", *m.Subject)
		}
		add("Timestamp", m.Timestamp)
	} else {
		add("SubscribeURL", m.SubscribeURL)
		add("Timestamp", m.Timestamp)
		add("Token", m.Token)
	}
	add("TopicArn", m.TopicARN)
	add("Type", m.Type)
	return b.String()
}

// trusted reports whether an address is one of SNS in the topic's region.
func (s *sns) trusted(address string, certificate bool) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host != s.host || u.User != nil || u.Fragment != "" {
		return false
	}
	return !certificate || strings.HasSuffix(u.Path, ".pem") && u.RawQuery == "" && !strings.Contains(u.Path, "..")
}

// subscribe confirms that this account wants the topic's messages.
func (s *sns) subscribe(ctx context.Context, m *snsMessage) (channels.Report, error) {
	if !s.trusted(m.SubscribeURL, false) {
		return channels.Report{}, refuseCallback(http.StatusForbidden, "the address to confirm at is not that of sns in the topic's region")
	}
	if err := s.certs.confirm(ctx, m.SubscribeURL); err != nil {
		return channels.Report{}, err
	}
	return channels.Report{Answer: said("taken: subscribed")}, nil
}
