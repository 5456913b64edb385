package sms

import "github.com/notification-dispatcher/dispatcher/internal/channels"

// Preview implements [channels.Previewer].
func (*Provider) Preview(m *channels.Message) channels.Preview {
	v := channels.Preview{Body: m.Content.SMSText()}
	v.Segments, v.Encoding = Segments(v.Body)
	return v
}
