package config

import (
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/notification-dispatcher/dispatcher/internal/config/strict"
)

// Env is a process's environment.
type Env map[string]string

// ParseEnv reads what [os.Environ] returns.
func ParseEnv(environ []string) Env {
	env := Env{}
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok {
			env[name] = value
		}
	}
	return env
}

const (
	prefix     = "DISPATCHER_"
	fileSuffix = "_FILE"
	// databaseURL is what hosts and other programs call it.
	databaseURL = "DATABASE_URL"
)

// others are the variables with our prefix that are no settings: the file's path,
// and what the client commands read.
var others = []string{prefix + "CONFIG", prefix + "URL", prefix + "KEY"}

// serviceLink matches the variables that Kubernetes and container links add for
// a service that is called dispatcher, or dispatcher-something.
var serviceLink = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// linked reports whether a variable is such a one. Of those that only end in
// _PORT, the value tells it from somebody's guess at a setting.
func linked(name, value string) bool {
	return serviceLink.MatchString(name) || strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}

// Variable is the environment variable of a setting: DISPATCHER_HTTP_MAX_BODY
// for http.max_body, and DATABASE_URL for database.url.
func Variable(path string) string {
	if path == "database.url" {
		return databaseURL
	}
	return prefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// Variables lists the variables of all settings. Each has a twin with the suffix
// _FILE, which names a file to read the value from.
func Variables() []string {
	c := Default()
	var out []string
	for _, l := range strict.Leaves(&c) {
		out = append(out, Variable(l.Path))
	}
	return out
}

func (c *Config) environment(env Env) strict.Problems {
	problems := unknownVariables(env)
	for _, l := range strict.Leaves(c) {
		name := Variable(l.Path)
		text, ok, problem := env.lookup(name)
		if problem != "" {
			problems.Add(name+fileSuffix, 0, problem)
		}
		if !ok {
			continue
		}
		if err := l.Set(text); err != nil {
			problems.Add(name, 0, err.Error())
		}
	}
	return problems
}

// lookup finds a setting's text in the variable or its twin. A variable that is
// set to nothing counts as not set, as compose files and shells leave it.
func (env Env) lookup(name string) (text string, ok bool, problem string) {
	path := env[name+fileSuffix]
	if path == "" {
		return env[name], env[name] != "", ""
	}
	if env[name] != "" {
		return "", false, "is set beside " + name + "; use one of them"
	}
	b, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return "", false, err.Error()
	}
	return strings.TrimRight(string(b), "\r\n"), true, ""
}

func unknownVariables(env Env) strict.Problems {
	known := append(Variables(), others...)
	var problems strict.Problems
	for name, value := range env {
		if !strings.HasPrefix(name, prefix) || linked(name, value) {
			continue
		}
		if slices.Contains(known, name) || slices.Contains(known, strings.TrimSuffix(name, fileSuffix)) {
			continue
		}
		problems.Add(name, 0, strict.Unknown("environment variable", name, known))
	}
	slices.SortFunc(problems, func(a, b strict.Problem) int { return strings.Compare(a.Path, b.Path) })
	return problems
}
