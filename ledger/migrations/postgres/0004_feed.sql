-- Usage as it is booked: events of requests that ended, by their place, of one tenant.
CREATE INDEX IF NOT EXISTS event_log_ended ON event_log (subject, position)
    WHERE type IN ('waybill.request.settled.v1', 'waybill.request.lost.v1');
