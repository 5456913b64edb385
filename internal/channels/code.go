package channels

// Code returns s if it has the shape of a provider's code, such as "21211",
// "UNREGISTERED", "messaging/invalid-argument" or "550 5.1.1", and the empty
// string otherwise. What a provider puts where its code should stand is not ours
// to trust: a proxy's page or an echo of the request has a text of the message
// in it. A code is 1 to 64 ASCII letters, digits and "_-./: ", and starts with
// a letter or a digit.
func Code(s string) string {
	if s == "" || len(s) > maxCode {
		return ""
	}
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if alnum {
			continue
		}
		switch c {
		case '_', '-', '.', '/', ':', ' ':
			if i > 0 {
				continue
			}
		}
		return ""
	}
	return s
}
