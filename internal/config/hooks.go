package config

import (
	"errors"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/notification-dispatcher/dispatcher/internal/config/strict"
)

// StatusWebhooksAccount is the name of the account that status webhooks are sent
// through, which no other can have.
const StatusWebhooksAccount = "status-webhooks"

// StatusWebhooks is what the endpoints that projects register may be. They are
// guarded as other webhooks are: by default only public addresses are called.
type StatusWebhooks struct {
	// AllowPorts are the ports that may be called; default 80 and 443.
	AllowPorts List `yaml:"allow_ports"`
	// AllowPrivate are exceptions from the rule that only public addresses are
	// called: "host:port", or a prefix such as "10.1.0.0/16". Default none.
	AllowPrivate List `yaml:"allow_private"`
}

// Ports are the ports that may be called; none for the default.
func (s StatusWebhooks) Ports() []int {
	var out []int
	for _, text := range s.AllowPorts.Items() {
		n, _ := strconv.Atoi(text) // check has been here
		out = append(out, n)
	}
	return out
}

func (s StatusWebhooks) check(problems *strict.Problems) {
	for _, text := range s.AllowPorts.Items() {
		if n, err := strconv.Atoi(text); err != nil || n < 1 || n > 65535 {
			problems.Add("status_webhooks.allow_ports", 0, "must be ports from 1 to 65535")
			return
		}
	}
}

// List is a list of texts. As an environment variable they are separated by
// commas.
type List string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (l *List) UnmarshalText(text []byte) error {
	*l = List(strings.Join(List(text).Items(), ","))
	return nil
}

// UnmarshalYAML implements [yaml.Unmarshaler].
func (l *List) UnmarshalYAML(node *yaml.Node) error {
	var list []string
	if node.Kind != yaml.SequenceNode || node.Decode(&list) != nil {
		return errors.New("must be a list of texts")
	}
	return l.UnmarshalText([]byte(strings.Join(list, ",")))
}

// Items are the texts, without space around them.
func (l List) Items() []string {
	var out []string
	for part := range strings.SplitSeq(string(l), ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}
