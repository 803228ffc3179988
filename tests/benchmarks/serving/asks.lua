-- One call after another from a file of bodies, one a line; prints the round's figures as one line of JSON.
-- Run by wrk: wrk -s asks.lua URL -- FILE
local calls, last = {}, 0

function init(args)
   wrk.headers["Content-Type"] = "application/json"
   for body in io.lines(args[1]) do
      calls[#calls + 1] = wrk.format("POST", nil, nil, body)
   end
end

function request()
   last = last % #calls + 1
   return calls[last]
end

function done(summary, latency, requests)
   local errors = summary.errors
   io.write(string.format(
      'figures {"answers": %d, "duration_s": %.6f, "refused": %d, "broken": %d, "p50_ms": %.4f, "p99_ms": %.4f}\n',
      summary.requests, summary.duration / 1e6, errors.status,
      errors.connect + errors.read + errors.write + errors.timeout,
      latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
