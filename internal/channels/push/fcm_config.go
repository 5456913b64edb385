package push

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"regexp"

	"github.com/go-json-experiment/json"
	"golang.org/x/oauth2/jwt"

	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const (
	fcmBaseURL = "https://fcm.googleapis.com"
	fcmScope   = "https://www.googleapis.com/auth/firebase.messaging"
)

// FCMConfig configures an account of Firebase Cloud Messaging, HTTP v1.
type FCMConfig struct {
	// Credentials is the JSON key of a Google service account that may send
	// messages of the project. Access tokens come from its token_uri. Required.
	Credentials secret.Value `yaml:"credentials"`
	// Project is the Firebase project's id; default is the project_id of Credentials.
	Project string `yaml:"project"`
	// BaseURL is where messages are sent; default https://fcm.googleapis.com.
	BaseURL string `yaml:"base_url"`
}

// projectID is Google's rule for project ids, with the domain-scoped ones.
var projectID = regexp.MustCompile(`^([a-z0-9.-]+:)?[a-z][a-z0-9-]{2,29}$`)

// serviceAccount is what is needed of a service account's JSON key.
type serviceAccount struct {
	Type         string `json:"type"`
	ProjectID    string `json:"project_id"`
	PrivateKeyID string `json:"private_key_id"`
	PrivateKey   string `json:"private_key"`
	ClientEmail  string `json:"client_email"`
	TokenURI     string `json:"token_uri"`
}

// resolve checks the configuration and returns where messages go and how tokens
// are asked for.
func (c FCMConfig) resolve() (endpoint string, grant *jwt.Config, err error) {
	var p problems
	base := p.baseURL(c.BaseURL, fcmBaseURL)
	account := c.account(&p)
	project := c.Project
	if project == "" {
		project = account.ProjectID
	}
	switch {
	case project == "" && !c.Credentials.Empty():
		p.add("project", "is required where the credentials have no project_id")
	case project != "" && !projectID.MatchString(project):
		p.add("project", "must be a Firebase project id")
	}
	grant = &jwt.Config{
		Email: account.ClientEmail, PrivateKey: []byte(account.PrivateKey), PrivateKeyID: account.PrivateKeyID,
		Scopes: []string{fcmScope}, TokenURL: account.TokenURI,
	}
	return base + "/v1/projects/" + url.PathEscape(project) + "/messages:send", grant, p.err()
}

// account reads the credentials. Its problems never quote them.
func (c FCMConfig) account(p *problems) serviceAccount {
	var a serviceAccount
	if c.Credentials.Empty() {
		p.add("credentials", "is required")
		return a
	}
	if err := json.Unmarshal([]byte(c.Credentials.Reveal()), &a); err != nil {
		p.add("credentials", "must be the JSON key of a service account")
		return serviceAccount{}
	}
	if a.Type != "service_account" {
		p.add("credentials", `type must be "service_account"`)
	}
	if a.ClientEmail == "" {
		p.add("credentials", "client_email is missing")
	}
	if u, err := url.Parse(a.TokenURI); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		p.add("credentials", "token_uri must be an http or https URL")
	}
	if !isRSAKey(a.PrivateKey) {
		p.add("credentials", "private_key must be an RSA key in PEM")
	}
	return a
}

func isRSAKey(text string) bool {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return false
	}
	if _, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return true
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	_, ok := key.(*rsa.PrivateKey)
	return err == nil && ok
}
