package push

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const apnsBaseURL = "https://api.push.apple.com"

// apnsPing is after how much silence a connection is asked whether it lives, and
// how long the answer may take.
const apnsPing = 15 * time.Second

// APNsConfig configures an account of the Apple Push Notification service with a
// provider token (a .p8 key).
type APNsConfig struct {
	// KeyID names the key: 10 characters. Required.
	KeyID string `yaml:"key_id"`
	// TeamID is the developer team that the key belongs to: 10 characters. Required.
	TeamID string `yaml:"team_id"`
	// PrivateKey is the text of the .p8 file. Required.
	PrivateKey secret.Value `yaml:"private_key"`
	// Topic is the app's bundle id. Required.
	Topic string `yaml:"topic"`
	// BaseURL is https://api.push.apple.com by default; tokens of development
	// builds need https://api.sandbox.push.apple.com. An http URL is called by
	// HTTP/2 in clear text, for development.
	BaseURL string `yaml:"base_url"`
	// CAFile is a file of PEM certificates that are trusted beside the system's;
	// default none.
	CAFile string `yaml:"ca_file"`
}

// tenCharacters is the shape of Apple's key and team ids.
var tenCharacters = regexp.MustCompile(`^[A-Za-z0-9]{10}$`)

// bundleID is the shape of a topic.
var bundleID = regexp.MustCompile(`^[A-Za-z0-9.-]{1,255}$`)

// resolve checks the configuration and returns what it stands for.
func (c APNsConfig) resolve() (base string, client *http.Client, key *ecdsa.PrivateKey, err error) {
	var p problems
	base = p.baseURL(c.BaseURL, apnsBaseURL)
	p.shape("key_id", c.KeyID, tenCharacters, "must be 10 letters and digits")
	p.shape("team_id", c.TeamID, tenCharacters, "must be 10 letters and digits")
	p.shape("topic", c.Topic, bundleID, "must be a bundle id such as com.example.app")
	if c.PrivateKey.Empty() {
		p.add("private_key", "is required")
	} else if key = parseP8(c.PrivateKey.Reveal()); key == nil {
		p.add("private_key", "must be the text of a .p8 file: a P-256 key in PEM")
	}
	client = newAPNsClient(strings.HasPrefix(base, "http://"), c.roots(&p))
	return base, client, key, p.err()
}

// roots returns the certificates to trust, nil for the system's alone.
func (c APNsConfig) roots(p *problems) *x509.CertPool {
	if c.CAFile == "" {
		return nil
	}
	text, err := os.ReadFile(c.CAFile)
	if err != nil {
		p.add("ca_file", "%w", err)
		return nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(text) {
		p.add("ca_file", "holds no certificate in PEM")
	}
	return pool
}

// newAPNsClient speaks HTTP/2 and nothing else, as APNs does.
func newAPNsClient(clear bool, roots *x509.CertPool) *http.Client {
	client := channels.NewHTTPClient(perHost)
	protocols := new(http.Protocols)
	protocols.SetHTTP2(!clear)
	protocols.SetUnencryptedHTTP2(clear)
	t := client.Transport.(*http.Transport)
	t.Protocols = protocols
	t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: apnsPing, PingTimeout: apnsPing}
	return client
}

func parseP8(text string) *ecdsa.PrivateKey {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil
	}
	return key
}
