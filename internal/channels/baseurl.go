package channels

import (
	"errors"
	"net/url"
	"strings"
)

// BaseURL reads an account's base_url, where the empty text means vendor's own,
// and returns it without a slash at its end. A path is allowed, as for a proxy
// that serves several vendors. The error names the yaml key and never the value.
func BaseURL(text, vendor string) (string, error) {
	if text == "" {
		return vendor, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", errors.New("base_url: must be an http or https URL without user, query and fragment")
	}
	return strings.TrimRight(u.String(), "/"), nil
}
