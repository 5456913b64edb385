package config

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/notification-dispatcher/dispatcher/internal/config/strict"
)

// Load reads the configuration from the file at path, where path is not empty,
// and from env and flags. The names of flags are the paths of settings, such as
// "http.listen".
//
// The error is a [*strict.Error] with all that is wrong; the configuration is
// then as much as could be understood, for a caller that wants to find more.
func Load(path string, env Env, flags map[string]string) (Config, error) {
	var unread strict.Problems
	var text []byte
	if path != "" {
		var err error
		if text, err = os.ReadFile(path); err != nil { //nolint:gosec // the operator names the file
			unread = strict.Problems{{Text: err.Error()}}
		}
	}
	c, err := Parse(text, env, flags)
	return c, append(unread, strict.From(err)...).Err()
}

// Parse is [Load] with the file's text in place of its path.
func Parse(text []byte, env Env, flags map[string]string) (Config, error) {
	c := Default()
	problems := c.read(text)
	problems = append(problems, c.environment(env)...)
	problems = append(problems, c.flags(flags)...)
	c.check(&problems)
	return c, problems.Err()
}

func (c *Config) read(b []byte) strict.Problems {
	var doc, extra yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(b))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return strict.Problems{{Text: "not YAML: " + err.Error()}}
	}
	if err := dec.Decode(&extra); !errors.Is(err, io.EOF) {
		return strict.Problems{{Line: extra.Line, Text: "holds more than one YAML document"}}
	}
	pairs, problems := strict.Mapping(&doc, "")
	own := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, p := range pairs {
		if p.Key.Value == "channels" {
			problems = append(problems, c.channels(p.Value)...)
			continue
		}
		own.Content = append(own.Content, p.Key, p.Value)
	}
	return append(problems, strict.Decode(own, "", c)...)
}

func (c *Config) flags(flags map[string]string) strict.Problems {
	var problems strict.Problems
	leaves := strict.Leaves(c)
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		i := slices.IndexFunc(leaves, func(l strict.Leaf) bool { return l.Path == name })
		if i < 0 {
			problems.Add(name, 0, "no such setting")
			continue
		}
		if err := leaves[i].Set(flags[name]); err != nil {
			problems.Add(name, 0, err.Error()+" (given as a flag)")
		}
	}
	return problems
}
