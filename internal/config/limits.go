package config

import (
	"errors"
	"net/netip"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/notification-dispatcher/dispatcher/internal/config/strict"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// Limits are how much callers may ask for.
type Limits struct {
	// Write, Read and Admin are for each API key in the whole cluster, by the scope
	// that a route needs, unless the key has limits of its own. Defaults 1000 a
	// second and 10,000 at once, 200 and 2000, 10 and 100.
	Write Rate `yaml:"write"`
	Read  Rate `yaml:"read"`
	Admin Rate `yaml:"admin"`
	// Unauthenticated is for each IPv4 address or IPv6 /64 at one process, and for
	// requests whose key is not known to be good. Default 5 a second and 100 at
	// once.
	Unauthenticated Rate `yaml:"unauthenticated"`
}

// Rate is a rate with a burst.
type Rate struct {
	PerSecond float64 `yaml:"per_second"` // 1/3600 to 1,000,000
	Burst     int     `yaml:"burst"`      // 1 to 1,000,000
}

// Limit is the rate as a limiter takes it.
func (r Rate) Limit() resilience.Limit { return resilience.Limit(r) }

func (l *Limits) check(problems *strict.Problems) {
	for _, at := range []struct {
		name string
		rate Rate
	}{{"write", l.Write}, {"read", l.Read}, {"admin", l.Admin}, {"unauthenticated", l.Unauthenticated}} {
		if err := at.rate.Limit().Check(); err != nil {
			problems.Add("http.limits."+at.name, 0, err.Error())
		}
	}
}

// Networks are CIDR prefixes and addresses, separated by commas. In YAML they are
// a list or such a text.
type Networks string

// errNetwork says what is allowed, without what was given.
var errNetwork = errors.New("must be networks such as 10.0.0.0/8 or addresses such as 2001:db8::1")

// UnmarshalText implements [encoding.TextUnmarshaler].
func (n *Networks) UnmarshalText(text []byte) error {
	var all []string
	for part := range strings.SplitSeq(string(text), ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		prefix, err := network(part)
		if err != nil {
			return err
		}
		all = append(all, prefix.String())
	}
	*n = Networks(strings.Join(all, ","))
	return nil
}

// UnmarshalYAML implements [yaml.Unmarshaler].
func (n *Networks) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		return n.UnmarshalText([]byte(node.Value))
	}
	var list []string
	if node.Kind != yaml.SequenceNode || node.Decode(&list) != nil {
		return errNetwork
	}
	return n.UnmarshalText([]byte(strings.Join(list, ",")))
}

// Prefixes are the networks.
func (n Networks) Prefixes() []netip.Prefix {
	var out []netip.Prefix
	for part := range strings.SplitSeq(string(n), ",") {
		if prefix, err := network(part); err == nil { // what was read has been checked
			out = append(out, prefix)
		}
	}
	return out
}

func network(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil || prefix.Addr().Is4In6() {
		return netip.Prefix{}, errNetwork
	}
	return prefix.Masked(), nil
}
