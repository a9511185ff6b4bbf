-- Calls on the host. The arguments of a UserMarker are the message of a range, and those of a graph
-- launch contain the stream. rocpd.autograd creates ext_autogradapi from markers.
SELECT
    a.id AS correlation_id,
    a.pid AS process,
    a.tid AS thread,
    a.start AS start_ns,
    a.end - a.start AS duration_ns,
    a.domain_id AS source_category_string,
    a.apiName_id AS call_string,
    CASE WHEN a.apiName_id IN (
        SELECT id FROM rocpd_string WHERE string = 'UserMarker' OR string GLOB '*GraphLaunch'
    ) THEN a.args_id END AS arguments_id,
    e.autogradName_id AS operator_string
FROM rocpd_api a
LEFT JOIN ext_autogradapi e ON e.api_ptr_id = a.id
ORDER BY a.id
