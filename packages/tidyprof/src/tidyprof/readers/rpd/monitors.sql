-- Values of monitors, each of which applied from start to end. The unit of sclk is in the tracer's
-- source code (rpd_tracer/RocmSmiDataSource.cpp); other monitors have no unit.
SELECT
    start AS time_ns,
    deviceId AS device,
    monitorType AS name,
    CASE monitorType WHEN 'sclk' THEN 'MHz' END AS unit,
    CAST(value AS TEXT) AS value_text,
    end - start AS duration_ns
FROM rocpd_monitor
