package webhook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const (
	secretPrefix     = "whsec_"
	maxSecrets       = 2
	minKey, maxKey   = 24, 64 // bytes, as Standard Webhooks 1.0.0 demands
	defaultUserAgent = "notification-dispatcher/1"
)

// Config configures an account that calls HTTP endpoints.
type Config struct {
	// Secrets sign the requests (Standard Webhooks 1.0.0, HMAC-SHA256): "whsec_"
	// and the base64 of 24 to 64 random bytes. At least one; a second one while
	// receivers change over from the old to the new, when both sign every request.
	Secrets []secret.Value `yaml:"secrets"`
	// UserAgent is the User-Agent of requests whose target names none; default
	// "notification-dispatcher/1".
	UserAgent string `yaml:"user_agent"`
	// AllowPorts are the ports that may be called; default 80 and 443.
	AllowPorts []int `yaml:"allow_ports"`
	// AllowPrivate are exceptions from the rule that only public addresses are
	// called, for development and for receivers of one's own: "host:port", which is
	// exempt as it stands in a URL, port and all; or a prefix such as "10.1.0.0/16",
	// whose addresses are taken for public ones. Default none.
	AllowPrivate []string `yaml:"allow_private"`
}

// settings are a Config that has been checked.
type settings struct {
	keys      [][]byte
	userAgent string
	rules     rules
}

// resolve checks the whole of c. The error joins one for each setting that is
// wrong, each beginning with its key.
func (c Config) resolve() (settings, error) {
	var s settings
	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	var err error
	s.keys, err = keys(c.Secrets)
	add(err)
	add(c.resolveRest(&s))
	return s, errors.Join(errs...)
}

// resolveRest checks all of c but the secrets.
func (c Config) resolveRest(s *settings) error {
	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	s.userAgent = c.UserAgent
	if s.userAgent == "" {
		s.userAgent = defaultUserAgent
	}
	if !validHeaderValue(s.userAgent) {
		add(errors.New("user_agent: must be printable ASCII"))
	}
	var err error
	s.rules.ports, err = ports(c.AllowPorts)
	add(err)
	add(s.rules.exempt(c.AllowPrivate))
	return errors.Join(errs...)
}

func keys(secrets []secret.Value) ([][]byte, error) {
	if len(secrets) == 0 || len(secrets) > maxSecrets {
		return nil, fmt.Errorf("secrets: must be one, or two while they are changed, not %d", len(secrets))
	}
	var out [][]byte
	var errs []error
	for i, s := range secrets {
		key, err := decodeSecret(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("secrets[%d]: %w", i, err))
		}
		out = append(out, key)
	}
	return out, errors.Join(errs...)
}

func decodeSecret(s secret.Value) ([]byte, error) {
	text, ok := strings.CutPrefix(s.Reveal(), secretPrefix)
	if !ok {
		return nil, errors.New("must begin with whsec_")
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("must be whsec_ and base64") // the cause would quote the secret
	}
	if len(key) < minKey || len(key) > maxKey {
		return nil, fmt.Errorf("must hold %d to %d bytes, not %d", minKey, maxKey, len(key))
	}
	return key, nil
}

func ports(allow []int) ([]uint16, error) {
	if len(allow) == 0 {
		return []uint16{80, 443}, nil
	}
	var out []uint16
	for i, p := range allow {
		if p < 1 || p > 65535 {
			return nil, fmt.Errorf("allow_ports[%d]: must be 1 to 65535, not %d", i, p)
		}
		out = append(out, uint16(p))
	}
	return out, nil
}

// exempt reads allow_private into r.
func (r *rules) exempt(entries []string) error {
	var errs []error
	r.hosts = map[string]bool{}
	for i, e := range entries {
		if prefix, err := netip.ParsePrefix(e); err == nil {
			r.prefixes = append(r.prefixes, prefix.Masked())
			continue
		}
		host, port, err := net.SplitHostPort(e)
		if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n == 0 || host == "" {
			errs = append(errs, fmt.Errorf("allow_private[%d]: must be host:port or an address prefix such as 10.1.0.0/16, not %q", i, e))
			continue
		}
		r.hosts[net.JoinHostPort(strings.ToLower(host), port)] = true
	}
	return errors.Join(errs...)
}
