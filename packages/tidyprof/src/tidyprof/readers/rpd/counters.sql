-- Hardware counters, each for one operation
SELECT
    c.op_id,
    o.start AS time_ns,
    o.gpuId AS device,
    n.string AS name,
    c.value AS value,
    o.end - o.start AS duration_ns,
    CASE d.string WHEN '' THEN t.string ELSE d.string END AS kernel
FROM rocpd_counter c
JOIN rocpd_op o ON o.id = c.op_id
JOIN rocpd_string n ON n.id = c.name_id
LEFT JOIN rocpd_string d ON d.id = o.description_id
LEFT JOIN rocpd_string t ON t.id = o.opType_id
