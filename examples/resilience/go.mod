module example.com/resilience

go 1.19
