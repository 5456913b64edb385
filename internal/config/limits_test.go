package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/config"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

func TestLimitsComeFromFileAndEnvironment(t *testing.T) {
	t.Parallel()
	c, err := config.Parse([]byte("http:\n  limits:\n    write: {per_second: 0.5}\n"), config.Env{
		"DATABASE_URL": "postgres://x", "DISPATCHER_HTTP_LIMITS_READ_BURST": "7",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.HTTP.Limits.Write.Limit(), (resilience.Limit{PerSecond: 0.5, Burst: 10_000}); got != want {
		t.Errorf("write is %+v, want %+v", got, want)
	}
	if got := c.HTTP.Limits.Read.Burst; got != 7 {
		t.Errorf("read's burst is %d, want 7", got)
	}
}

func TestLimitsOutOfBoundsAreProblems(t *testing.T) {
	t.Parallel()
	_, err := config.Parse([]byte("http: {limits: {write: {per_second: 0}, admin: {burst: 0}}}"), config.Env{"DATABASE_URL": "postgres://x"}, nil)
	for _, path := range []string{"http.limits.write", "http.limits.admin"} {
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%v does not name %s", err, path)
		}
	}
}

func TestTrustedProxiesAreNetworks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, yaml string
		env        string
		want       []string
	}{
		{"none by default", "", "", nil},
		{"a list", "[10.1.2.3/8, '2001:db8::1']", "", []string{"10.0.0.0/8", "2001:db8::1/128"}},
		{"a text", "192.0.2.1", "", []string{"192.0.2.1/32"}},
		{"a variable", "10.0.0.0/8", "fd00::/8, 127.0.0.1", []string{"fd00::/8", "127.0.0.1/32"}},
		{"an empty list", "[]", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := config.Parse([]byte("http:\n  trusted_proxies: "+tt.yaml+"\n"), config.Env{
				"DATABASE_URL": "postgres://x", "DISPATCHER_HTTP_TRUSTED_PROXIES": tt.env,
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range c.HTTP.TrustedProxies.Prefixes() {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("networks (-want +got):\n%s", diff)
			}
		})
	}
	for _, bad := range []string{"everybody", "10.0.0.0/33", "[{}]", "{a: b}", "'::ffff:10.0.0.0/104'"} {
		_, err := config.Parse([]byte("http:\n  trusted_proxies: "+bad+"\n"), config.Env{"DATABASE_URL": "postgres://x"}, nil)
		if err == nil || !strings.Contains(err.Error(), "http.trusted_proxies") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
