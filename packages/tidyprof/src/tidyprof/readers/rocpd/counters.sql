-- Values of counters. Like rocpd's own view, add the instances of a hardware block, and leave out
-- rows with a sample_id (schema 3.0.3), which are periodic hardware samples.
SELECT
    v.event_id,
    p.name AS name,
    nullif(p.units, '') AS unit,
    g.type_index AS device,
    sum(v.value) AS value
FROM rocpd_pmc_event v
JOIN rocpd_info_pmc p ON p.id = v.pmc_id
LEFT JOIN rocpd_info_agent g ON g.id = p.agent_id AND g.type = 'GPU'
WHERE v.sample_id IS NULL AND typeof(v.value) IN ('integer', 'real') AND abs(v.value) < 9e999
GROUP BY v.event_id, v.pmc_id
ORDER BY min(v.id)
