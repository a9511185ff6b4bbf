-- Five queries for a trace in SQLite: an .rpd file of rocmProfileData or a database of rocprofv3 (rocpd).
-- `python 06_rpd_report.py FILE` runs all of them. To run one manually in `sqlite3 FILE`, paste the block `work in ...`
-- for your format, then `.parameter set :begin 0`, then any other block. Times are in ns. Rows before :begin are left
-- out. Kernels of AMD's runtime that copy or fill memory count as copies and fills. If one call launches several kernels
-- (a HIP graph), its time is divided among them.

-- name: work in rpd
CREATE TEMP VIEW work AS
SELECT o.gpuId AS gpu, CASE o.description WHEN '' THEN o.opType ELSE o.description END AS name,
       CASE WHEN o.opType LIKE '%copy%' OR o.description LIKE '%rocclr_copy%' THEN 'copy'
            WHEN o.opType LIKE '%fill%' OR o.description LIKE '%rocclr_fill%' THEN 'fill' ELSE 'kernel' END AS kind,
       o.start, o.end, 1.0 * (a.end - a.start) / count(*) OVER (PARTITION BY a.id) AS launch_ns
FROM op o LEFT JOIN rocpd_api_ops l ON l.op_id = o.id LEFT JOIN rocpd_api a ON a.id = l.api_id;

-- name: work in rocpd
CREATE TEMP VIEW work AS
SELECT agent_abs_index AS gpu, name,
       CASE WHEN name LIKE '%rocclr_copy%' THEN 'copy' WHEN name LIKE '%rocclr_fill%' THEN 'fill' ELSE 'kernel' END
           AS kind,
       start, end, 1.0 * call.ns / count(*) OVER (PARTITION BY stack_id) AS launch_ns
FROM kernels LEFT JOIN (SELECT stack_id, max(duration) AS ns FROM regions WHERE category LIKE 'HIP%' GROUP BY stack_id)
    AS call USING (stack_id)
UNION ALL
SELECT CASE dst_agent_type WHEN 'GPU' THEN dst_agent_abs_index ELSE src_agent_abs_index END, name, 'copy', start, end,
       NULL
FROM memory_copies;

-- name: busy and idle time of each GPU (rpd with rocprofiler-sdk assigns all copies to GPU 0)
WITH line AS (
    SELECT gpu, start, end, max(end) OVER (PARTITION BY gpu ORDER BY start, end
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS latest
    FROM work WHERE start >= :begin)
SELECT gpu, count(*) AS operations, sum(end - start) / 1e6 AS sum_ms, (max(end) - min(start)) / 1e6 AS wall_ms,
       100.0 * sum(max(0, start - coalesce(latest, start))) / (max(end) - min(start)) AS idle_percent
FROM line GROUP BY gpu;

-- name: kernels with the most time
SELECT count(*) AS calls, sum(end - start) / 1e6 AS total_ms,
       100.0 * sum(end - start) / (SELECT sum(end - start) FROM work WHERE start >= :begin) AS percent_of_work, name
FROM work WHERE kind = 'kernel' AND start >= :begin GROUP BY name ORDER BY total_ms DESC LIMIT 10;

-- name: copies and fills
SELECT count(*) AS calls, sum(end - start) / 1e6 AS total_ms,
       100.0 * sum(end - start) / (SELECT sum(end - start) FROM work WHERE start >= :begin) AS percent_of_work, name
FROM work WHERE kind <> 'kernel' AND start >= :begin GROUP BY name ORDER BY total_ms DESC LIMIT 10;

-- name: longest gaps, and the operation after each
WITH line AS (
    SELECT gpu, name, start, max(end) OVER (PARTITION BY gpu ORDER BY start, end
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS latest
    FROM work WHERE start >= :begin)
SELECT gpu, (start - latest) / 1e6 AS gap_ms, (latest - (SELECT min(start) FROM work)) / 1e6 AS begins_at_ms,
       name AS next
FROM line WHERE start > latest ORDER BY gap_ms DESC LIMIT 5;

-- name: kernels whose launch calls take longer than they run
SELECT count(*) AS calls, sum(end - start) / 1e6 AS run_ms, sum(launch_ns) / 1e6 AS launch_ms, name
FROM work WHERE kind = 'kernel' AND launch_ns IS NOT NULL AND start >= :begin
GROUP BY name HAVING launch_ms > run_ms ORDER BY launch_ms DESC LIMIT 10;
