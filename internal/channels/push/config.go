package push

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
)

// problems collects what is wrong with a configuration, each by its YAML key.
type problems []error

func (p *problems) add(key, format string, args ...any) {
	*p = append(*p, fmt.Errorf("%s: "+format, append([]any{key}, args...)...))
}

func (p problems) err() error { return errors.Join(p...) }

func (p *problems) required(key, value string) {
	if value == "" {
		p.add(key, "is required")
	}
}

// shape checks a required value that has a known shape.
func (p *problems) shape(key, value string, re *regexp.Regexp, rule string) {
	p.required(key, value)
	if value != "" && !re.MatchString(value) {
		p.add(key, "%s", rule)
	}
}

// baseURL returns the vendor's address, or the configured one.
func (p *problems) baseURL(configured, vendor string) string {
	base, err := channels.BaseURL(configured, vendor)
	if err != nil {
		*p = append(*p, err)
	}
	return base
}
