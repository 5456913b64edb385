package catalog

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/config"
	"github.com/notification-dispatcher/dispatcher/internal/config/strict"
)

// Build makes the provider of every account, in the same order. The error is a
// [*strict.Error] with all that is wrong with any of them.
func Build(accounts []config.Account) ([]channels.Provider, error) {
	var problems strict.Problems
	providers := make([]channels.Provider, 0, len(accounts))
	for _, a := range accounts {
		if a.Provider == "" {
			continue // config.Load has reported it
		}
		p, err := buildOne(a)
		problems = append(problems, under(a.Path, err)...)
		providers = append(providers, p)
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return providers, nil
}

func buildOne(a config.Account) (channels.Provider, error) {
	s, ok := Lookup(a.Channel, a.Provider)
	if !ok {
		text := strict.Unknown("provider of "+string(a.Channel), a.Provider, Names(a.Channel))
		return nil, strict.Problems{{Path: "provider", Text: text}}.Err()
	}
	return s.New(a.Name, a.Settings.Node())
}

// under puts the path of an account before the paths of its problems.
func under(path string, err error) strict.Problems {
	problems := strict.From(err)
	for i := range problems {
		problems[i].Path = strings.TrimSuffix(path+"."+problems[i].Path, ".")
	}
	return problems
}

// setting matches the key, or path, that a constructor's error begins with.
var setting = regexp.MustCompile(`^([a-z][a-z0-9_]*(?:[.\[][a-z0-9_\]]+)*): (.*)$`)

// flatten turns a constructor's error into a problem for each error that is
// joined in it. One about a setting that could not be decoded, itself or in part,
// follows from that and is left out.
func flatten(err error, decoded strict.Problems) strict.Problems {
	var out strict.Problems
	for _, leaf := range leaves(err) {
		p := strict.Problem{Text: leaf.Error()}
		if m := setting.FindStringSubmatch(p.Text); m != nil {
			p.Path, p.Text = m[1], m[2]
		}
		follows := func(d strict.Problem) bool { return d.Path == p.Path || strings.HasPrefix(d.Path, p.Path+".") }
		if p.Path == "" || !slices.ContainsFunc(decoded, follows) {
			out = append(out, p)
		}
	}
	return out
}

// leaves finds the errors that are joined in err. What is wrapped around them,
// the account's name, is said by the path.
func leaves(err error) []error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if joined, ok := e.(interface{ Unwrap() []error }); ok {
			return apart(joined.Unwrap())
		}
	}
	return []error{err}
}

func apart(errs []error) []error {
	var out []error
	for _, err := range errs {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			out = append(out, apart(joined.Unwrap())...)
			continue
		}
		out = append(out, err)
	}
	return out
}

// locate gives a problem the line of the setting that it is about.
func locate(problems strict.Problems, settings *yaml.Node) {
	for i := range problems {
		key := problems[i].Path
		if end := strings.IndexAny(key, ".["); end > 0 {
			key = key[:end]
		}
		for j := 0; problems[i].Line == 0 && j+1 < len(settings.Content); j += 2 {
			if settings.Content[j].Value == key {
				problems[i].Line = settings.Content[j].Line
			}
		}
	}
}
