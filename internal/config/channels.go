package config

import (
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/notification-dispatcher/dispatcher/internal/config/strict"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Settings is the part of an account that only its provider understands. It
// prints as nothing but its keys.
type Settings struct{ node *yaml.Node }

// NewSettings wraps a mapping.
func NewSettings(node *yaml.Node) Settings { return Settings{node} }

// Node is the mapping, never nil.
func (s Settings) Node() *yaml.Node {
	if s.node == nil {
		return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	}
	return s.node
}

// String names the settings and hides their values.
func (s Settings) String() string {
	keys := make([]string, 0, len(s.Node().Content)/2)
	for i := 0; i+1 < len(s.Node().Content); i += 2 {
		keys = append(keys, s.Node().Content[i].Value)
	}
	return fmt.Sprintf("settings%q", keys)
}

// GoString implements [fmt.GoStringer], so that %#v hides the values too.
func (s Settings) GoString() string { return s.String() }

// LogValue implements [slog.LogValuer].
func (s Settings) LogValue() slog.Value { return slog.StringValue(s.String()) }

// channels reads the part of the file below "channels".
func (c *Config) channels(node *yaml.Node) strict.Problems {
	pairs, problems := strict.Mapping(node, "channels")
	for _, p := range pairs {
		ch := notify.Channel(p.Key.Value)
		path := "channels." + p.Key.Value
		if !ch.Valid() {
			problems.Add(path, p.Key.Line, strict.Unknown("channel", p.Key.Value, channelNames()))
			continue
		}
		channel, more := readChannel(ch, c.Channels[ch], path, p.Value)
		c.Channels[ch] = channel
		problems = append(problems, more...)
	}
	return problems
}

func channelNames() []string {
	out := make([]string, 0, 6)
	for _, c := range notify.Channels() {
		out = append(out, string(c))
	}
	return out
}

func readChannel(ch notify.Channel, channel Channel, path string, node *yaml.Node) (Channel, strict.Problems) {
	pairs, problems := strict.Mapping(node, path)
	own, rest := split(pairs, channel)
	problems = append(problems, strict.Decode(own, path, &channel)...)
	for _, p := range rest {
		switch {
		case p.Key.Value != "accounts":
			problems.Add(path+"."+p.Key.Value, p.Key.Line,
				strict.Unknown("setting", p.Key.Value, []string{"accounts", "max_in_flight"}))
		case strict.Null(p.Value):
		case p.Value.Kind != yaml.SequenceNode:
			problems.Add(path+".accounts", p.Value.Line, "must be a list of accounts")
		default:
			for i, item := range p.Value.Content {
				account, more := readAccount(ch, path+".accounts["+strconv.Itoa(i)+"]", item)
				channel.Accounts = append(channel.Accounts, account)
				problems = append(problems, more...)
			}
		}
	}
	between(&problems, path+".max_in_flight", channel.MaxInFlight, 1, 10000)
	return channel, problems
}

func readAccount(ch notify.Channel, path string, node *yaml.Node) (Account, strict.Problems) {
	account := defaultAccount(ch)
	account.Path = path
	pairs, problems := strict.Mapping(node, path)
	own, rest := split(pairs, account)
	problems = append(problems, strict.Decode(own, path, &account)...)
	settings := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: own.Line}
	for _, p := range rest {
		settings.Content = append(settings.Content, p.Key, p.Value)
	}
	account.Settings = NewSettings(settings)
	account.check(&problems)
	return account, problems
}

// split parts the entries that are fields of shape from the others.
func split(pairs []strict.Pair, shape any) (own *yaml.Node, rest []strict.Pair) {
	own = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	fields := strict.Fields(reflect.ValueOf(shape))
	for _, p := range pairs {
		if own.Line == 0 {
			own.Line = p.Key.Line
		}
		if _, ok := fields[p.Key.Value]; ok {
			own.Content = append(own.Content, p.Key, p.Value)
		} else {
			rest = append(rest, p)
		}
	}
	return own, rest
}

var (
	accountName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	projectName = accountName
)

const nameRule = `must be 1 to 63 lower-case letters, digits, "-" and "_", and begin with a letter or digit`

func (a *Account) check(problems *strict.Problems) {
	switch {
	case a.Name == "":
		problems.Add(a.Path+".name", 0, "must be given")
	case !accountName.MatchString(a.Name):
		problems.Add(a.Path+".name", 0, nameRule)
	}
	if a.Provider == "" {
		problems.Add(a.Path+".provider", 0, "must be given")
	}
	if !a.OnUnknown.Valid() {
		problems.Add(a.Path+".on_unknown", 0, "must be one of reconcile, resend, fallback, assume_sent")
	}
	if slices.ContainsFunc(a.Projects, func(p string) bool { return !projectName.MatchString(p) }) {
		problems.Add(a.Path+".projects", 0, "a project "+nameRule)
	}
	a.checkTimes(problems)
}
