package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Buckets of the histograms, in seconds: for one exchange with a provider or a
// caller, and for what may take as long as a retry or a night.
var (
	quick = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}
	slow  = []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600}
)

func counter(r *prometheus.Registry, name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	r.MustRegister(v)
	return v
}

func gauge(r *prometheus.Registry, name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	r.MustRegister(v)
	return v
}

// histogram has classic buckets and, for a server that asks for them, native ones.
func histogram(r *prometheus.Registry, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help,
		Buckets:                     buckets,
		NativeHistogramBucketFactor: 1.1,
		// Bounds what a histogram can grow to.
		NativeHistogramMaxBucketNumber: 100,
	}, labels)
	r.MustRegister(v)
	return v
}
